package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// runTimeout bounds whatever a test of a real process waits for.
const runTimeout = 30 * time.Second

// coordinatorFor serves a fake coordinator on a real address.
func coordinatorFor(t *testing.T) (*clienttest.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := clienttest.New()
	t.Cleanup(s.Close)
	if err := s.Serve(l); err != nil {
		t.Fatal(err)
	}
	return s, l.Addr().String()
}

// runProgram is a "lychgate run" in a process of its own.
type runProgram struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string // of stdout and stderr
	exited chan int
}

// startRun starts "lychgate run x", with the command after --.
func startRun(t *testing.T, addr string, args ...string) *runProgram {
	t.Helper()
	cmd := exec.Command("lychgate", append([]string{"run", "ledger/eu", "--address", addr}, args...)...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	p := &runProgram{t: t, cmd: cmd, lines: make(chan string, 100), exited: make(chan int, 1)}
	go p.read(out)
	go func() {
		_ = cmd.Wait() // its code says it all
		p.exited <- cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

func (p *runProgram) read(out io.ReadCloser) {
	defer out.Close()
	defer close(p.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		p.lines <- s.Text()
	}
}

// line waits for a line with this text and returns it.
func (p *runProgram) line(text string) string {
	p.t.Helper()
	timeout := time.After(runTimeout)
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the output ended without %q", text)
			}
			if strings.Contains(l, text) {
				return l
			}
		case <-timeout:
			p.t.Fatalf("no line with %q", text)
		}
	}
}

// pid waits for a line "NAME=pid".
func (p *runProgram) pid(name string) int {
	p.t.Helper()
	_, number, _ := strings.Cut(p.line(name+"="), "=")
	pid, err := strconv.Atoi(number)
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

func (p *runProgram) code() int {
	p.t.Helper()
	select {
	case code := <-p.exited:
		return code
	case <-time.After(runTimeout):
		p.t.Fatal("the program does not end")
	}
	return -1
}

func (p *runProgram) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", runTimeout, what)
		}
	}
}

// gone reports whether a process has ended; a zombie that nobody has waited for has.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	return isZombie(pid)
}

// family is a command with a child of its own, which tells both numbers and then waits.
const family = `sleep 1000 & echo child=$!; echo self=$$; wait`

func TestRunKeepsTheExitCode(t *testing.T) {
	s, addr := coordinatorFor(t)
	for _, tt := range []struct {
		want int
		args []string
	}{
		{0, []string{"--proxy", "none", "--", "true"}},
		{7, []string{"--proxy", "none", "--", "sh", "-c", "exit 7"}},
		{143, []string{"--proxy", "none", "--", "sh", "-c", "kill -TERM $$"}},
		{137, []string{"--proxy", "none", "--", "sh", "-c", "kill -KILL $$"}},
		{127, []string{"--proxy", "none", "--", "no-such-command"}},
		{126, []string{"--proxy", "none", "--", "/dev/null"}},
		{2, []string{"--proxy", "none", "--ttl", "0s", "--", "true"}},
		{2, []string{"more", "--", "true"}},
		{2, []string{"--proxy", "127.0.0.1:1,b", "--", "true"}},
		{1, []string{"--proxy", "127.0.0.1:1", "--", "true"}},
	} {
		if got := startRun(t, addr, tt.args...).code(); got != tt.want {
			t.Errorf("%v: got %d, want %d", tt.args, got, tt.want)
		}
		if _, _, held := s.Holder("ledger/eu"); held {
			t.Fatalf("%v: the lock is still held", tt.args)
		}
	}
}

func TestRunTellsItsCommandOfTheLock(t *testing.T) {
	_, addr := coordinatorFor(t)
	p := startRun(t, addr, "--proxy", "none", "--", "sh", "-c", `echo "$FENCE_RESOURCE $FENCE_TOKEN $FENCE_TICKET"`)
	if got, want := p.line("ledger"), "ledger/eu 1 clienttest:ledger/eu:1:0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunWithoutTheLock(t *testing.T) {
	s, addr := coordinatorFor(t)
	first := startRun(t, addr, "--proxy", "none", "--", "sh", "-c", family)
	self := first.pid("self")
	for _, wait := range []string{"0s", "100ms"} {
		p := startRun(t, addr, "--proxy", "none", "--wait", wait, "--", "echo", "ran")
		if code := p.code(); code != exitNotObtained {
			t.Errorf("--wait %s: got %d, want 75", wait, code)
		}
	}
	// A signal ends the wait, and the place in the queue.
	waiting := startRun(t, addr, "--proxy", "none", "--", "echo", "ran")
	eventually(t, "the second run waits", func() bool { return s.Waiting("ledger/eu") == 1 })
	waiting.signal(syscall.SIGINT)
	waiting.line("interrupted; the place in the queue was given up")
	if code := waiting.code(); code != exitSignalled+int(syscall.SIGINT) {
		t.Errorf("interrupted: got %d, want 130", code)
	}
	if n := s.Waiting("ledger/eu"); n != 0 {
		t.Errorf("%d still wait", n)
	}
	// With the lock given back the next one runs.
	next := startRun(t, addr, "--proxy", "none", "--", "echo", "ran")
	eventually(t, "the third run waits", func() bool { return s.Waiting("ledger/eu") == 1 })
	if err := syscall.Kill(self, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	next.line("ran")
	if code := next.code(); code != 0 {
		t.Errorf("the next run: got %d", code)
	}
	if code := first.code(); code != 143 {
		t.Errorf("the first run: got %d, want 143", code)
	}
}

func TestRunPassesSignalsToTheGroup(t *testing.T) {
	_, addr := coordinatorFor(t)
	p := startRun(t, addr, "--proxy", "none", "--", "sh", "-c",
		`trap 'echo got hup' HUP; trap 'exit 9' TERM; echo self=$$; while :; do sleep 0.05; done`)
	p.pid("self")
	p.signal(syscall.SIGHUP)
	p.line("got hup")
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 9 {
		t.Errorf("got %d, want 9", code)
	}
}

// What the command leaves in its group ends before the lock is given back.
func TestRunLeavesNothingBehind(t *testing.T) {
	_, addr := coordinatorFor(t)
	p := startRun(t, addr, "--proxy", "none", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo child=$!`)
	child := p.pid("child")
	if code := p.code(); code != 0 {
		t.Errorf("got %d, want 0", code)
	}
	if !gone(child) {
		t.Error("the command's child has survived the lock")
	}
}

// consul 9788, etcdctl lock: the child of a lost lock lived on.
func TestRunEndsTheGroupOfALostLock(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(s *clienttest.Server, p *runProgram)
		by   func(s *clienttest.Server) time.Time // when the group must be gone; zero: soon
	}{
		{"broken", func(s *clienttest.Server, _ *runProgram) { s.Expire("ledger/eu") }, nil},
		{
			"no quorum", func(s *clienttest.Server, _ *runProgram) { s.SetAvailable(false) },
			func(s *clienttest.Server) time.Time { return s.Deadline("ledger/eu") },
		},
		{"stopped and resumed", func(s *clienttest.Server, p *runProgram) {
			p.signal(syscall.SIGSTOP)
			eventually(p.t, "the lease runs out", func() bool { _, _, held := s.Holder("ledger/eu"); return !held })
			p.signal(syscall.SIGCONT)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, addr := coordinatorFor(t)
			p := startRun(t, addr, "--proxy", "none", "--ttl", "3s", "--", "sh", "-c", "trap '' TERM; "+family)
			child, self := p.pid("child"), p.pid("self")
			tt.lose(s, p)
			if tt.by == nil {
				eventually(t, "the group ends", func() bool { return gone(child) && gone(self) })
			} else {
				deadline := tt.by(s)
				eventually(t, "the group ends", func() bool { return gone(child) && gone(self) })
				if late := time.Since(deadline); late > 0 {
					t.Errorf("the group ended %v after the server's deadline", late)
				}
			}
			if code := p.code(); code != 137 {
				t.Errorf("got %d, want 137", code)
			}
		})
	}
}
