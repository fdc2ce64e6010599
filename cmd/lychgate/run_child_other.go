//go:build !linux

package main

import "syscall"

// attributes puts a command into a group of its own. There is no way here to have it die with us; without us
// its listener is gone.
func attributes(tty *terminal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if tty != nil {
		a.Foreground, a.Ctty = true, tty.fd
	}
	return a
}

// reap waits for the command's end and sweeps its group. Without waitid(2)'s WNOWAIT the command is reaped
// first, so for an instant its number could name another group; process numbers are not reused that fast.
func (c *child) reap() error {
	err := c.cmd.Wait()
	c.sweep()
	return err
}
