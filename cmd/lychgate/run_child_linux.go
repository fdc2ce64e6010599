package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes puts a command into a group of its own that dies with us. Pdeathsig reaches the command itself,
// not its children; what those still have is cut off with the listener.
func attributes(tty *terminal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if tty != nil {
		a.Foreground, a.Ctty = true, tty.fd
	}
	return a
}

// reap waits for the command's end, sweeps its group, and collects its status.
func (c *child) reap() error {
	for c.awaitChange() {
		c.suspend()
	}
	c.sweep()
	return c.cmd.Wait()
}

// awaitChange blocks until the command has stopped (true) or ended (false); an ended one is not reaped.
func (c *child) awaitChange() (stopped bool) {
	pid := c.cmd.Process.Pid
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || info.Code != cldStopped {
			return false
		}
		// Take note of the stop, so that the next call waits for something new.
		_ = unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		return true
	}
}

const cldStopped = 5 // CLD_STOPPED of sigaction(2)
