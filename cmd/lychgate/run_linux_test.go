package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// isZombie reports whether a process has ended but nobody has waited for it.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// A run that is killed takes its command with it; nobody is left to renew or to release.
func TestRunThatIsKilledTakesItsCommandWithIt(t *testing.T) {
	_, addr := coordinatorFor(t)
	p := startRun(t, addr, "--proxy", "none", "--", "sh", "-c", "echo self=$$; exec sleep 1000")
	self := p.pid("self")
	p.signal(syscall.SIGKILL)
	eventually(t, "the command ends", func() bool { return gone(self) })
}

// terminalRun starts "lychgate run" as the foreground job of a new terminal and returns the other end of it.
func terminalRun(t *testing.T, addr string, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command("lychgate", append([]string{"run", "ledger/eu", "--address", addr, "--proxy", "none"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, master
}

// The command gets the terminal: it can read, Ctrl-C is its own, and Ctrl-Z stops the run as a shell expects.
func TestRunInATerminal(t *testing.T) {
	_, addr := coordinatorFor(t)
	cmd, master := terminalRun(t, addr, "--", "sh", "-c", `echo ready; read x; echo got $x; exec sleep 1000`)
	p := &runProgram{t: t, cmd: cmd, lines: make(chan string, 100)}
	go p.read(io.NopCloser(master))
	p.line("ready")
	write := func(s string) {
		if _, err := master.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	write("hello\n")
	p.line("got hello")

	write("\x1a") // Ctrl-Z
	state := make(chan syscall.WaitStatus, 1)
	next := func() syscall.WaitStatus {
		go func() {
			var status syscall.WaitStatus
			for {
				_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
				if !errors.Is(err, syscall.EINTR) {
					break
				}
			}
			state <- status
		}()
		select {
		case s := <-state:
			return s
		case <-t.Context().Done():
			t.Fatal("the run does not change its state")
		}
		return 0
	}
	if s := next(); !s.Stopped() {
		t.Fatalf("after Ctrl-Z: got %v, want stopped", s)
	}
	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The command goes on, with the terminal: Ctrl-C reaches it.
	eventually(t, "the command has the terminal", func() bool {
		group, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPGRP)
		return err == nil && group != cmd.Process.Pid
	})
	write("\x03")
	if s := next(); !s.Exited() || s.ExitStatus() != exitSignalled+int(syscall.SIGINT) {
		t.Errorf("after Ctrl-C: got %v, code %d, want 130", s, s.ExitStatus())
	}
}
