package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal while this process has its foreground.
type terminal struct {
	fd    int
	group int // our process group
}

// foreground returns the terminal that in is, if our process group has its foreground; else nil.
func foreground(in io.Reader) *terminal {
	f, ok := in.(*os.File)
	if !ok {
		return nil
	}
	fd := int(f.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != syscall.Getpgrp() {
		return nil
	}
	return &terminal{fd: fd, group: group}
}

// take brings the terminal back to our process group.
func (t *terminal) take() {
	if t != nil {
		t.give(t.group)
	}
}

// give puts a process group into the foreground. An error means that the terminal is gone.
func (t *terminal) give(group int) {
	// Whoever is in the background and changes that is stopped by SIGTTOU, unless it ignores it.
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	signal.Reset(syscall.SIGTTOU)
}
