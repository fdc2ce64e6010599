package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errPortTaken is the one failure of a start that another port cures.
var errPortTaken = errors.New("the port is taken")

// process is one run of the postmaster.
type process struct {
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when it has been waited for
	err  error         // valid after done
}

func startProcess(bin, data string, a account, log io.Writer) (*process, error) {
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = data, environment(), attributes(a)
	p := &process{cmd: cmd, log: &tail{next: log}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.WaitDelay = immediateStop // a stray child that holds the log open must not hold us
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run starts the server and stays until it has ended, on one thread: the signal that tells the server of its
// parent's death is sent when the *thread* that forked it ends.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
}

// awaitReady watches the status line that the postmaster keeps in its pid file, as pg_ctl does.
func (p *process) awaitReady(ctx context.Context, data string) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w%s", context.Cause(ctx), p.log)
		case <-p.done:
			if strings.Contains(p.log.String(), "could not create any TCP/IP sockets") {
				return fmt.Errorf("%w%s", errPortTaken, p.log)
			}
			return fmt.Errorf("it ended at once: %w%s", p.err, p.log)
		case <-poll.C:
		}
		pid, status := pidFile(data)
		if pid == p.cmd.Process.Pid && (status == "ready" || status == "standby") {
			return nil
		}
	}
}

// end sends sig, and harder signals when the server does not obey in time, and returns when it is gone.
func (p *process) end(sig syscall.Signal) error {
	steps := []struct {
		sig   syscall.Signal
		bound time.Duration
	}{{syscall.SIGINT, fastStop}, {syscall.SIGQUIT, immediateStop}, {syscall.SIGKILL, immediateStop}}
	for _, step := range steps {
		if sig == syscall.SIGQUIT && step.sig == syscall.SIGINT {
			continue
		}
		if err := p.cmd.Process.Signal(step.sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal PostgreSQL: %w", err)
		}
		timer := time.NewTimer(step.bound)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return errors.New("PostgreSQL does not end, not even by SIGKILL")
}

// pidFile reads the process number and the status of the postmaster; zero values when there is none.
func pidFile(data string) (pid int, status string) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	if pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return 0, ""
	}
	if len(lines) >= 8 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}

// environment is ours without what would steer PostgreSQL's programs.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") {
			env = append(env, kv)
		}
	}
	return env
}

// tail passes the log on and keeps its end for error messages.
type tail struct {
	mu   sync.Mutex
	next io.Writer
	end  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - 4096; over > 0 {
		t.end = bytes.Clone(t.end[over:])
	}
	if t.next != nil {
		// The server must not stop because nobody can write its log.
		_, _ = t.next.Write(b)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.end) == 0 {
		return ""
	}
	return "; its log ends:\n" + string(t.end)
}
