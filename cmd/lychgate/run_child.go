package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// child is a running command and its process group, whose number is the command's process id.
type child struct {
	cmd    *exec.Cmd
	tty    *terminal // nil unless the command has the terminal's foreground
	exited chan struct{}
	code   int // valid once exited is closed

	mu     sync.Mutex
	reaped bool // the number may belong to somebody else
}

// startChild starts cmd in a process group of its own. If stdin is the terminal that this process has the
// foreground of, the command gets it, and this process takes it back at the end.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, tty: foreground(cmd.Stdin), exited: make(chan struct{})}
	cmd.SysProcAttr = attributes(c.tty)
	started := make(chan error)
	go func() {
		// The kernel kills the command when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG),
		// so this thread must live as long as the command. It ends with this goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return c, nil
}

// wait watches the command to its end, then kills what it left in its group.
func (c *child) wait() {
	defer close(c.exited)
	err := c.reap()
	c.awaitEmptyGroup()
	c.tty.take()
	c.code = exitCode(c.cmd, err)
}

// awaitEmptyGroup waits until the killed are gone: a write that one of them was in may still be finishing.
// Those that nobody reaps stay members for ever, hence the bound.
func (c *child) awaitEmptyGroup() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH) {
			return
		}
		<-tick.C
	}
}

// sweep kills what is left of the group; from here on nobody signals it any more. The command must not have
// been reaped before: until then its number names its group and nothing else.
func (c *child) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // ESRCH: nothing was left
	c.reaped = true
}

// suspend follows the command when the terminal has stopped it: the shell gets the terminal back and this
// process stops too, which the shell sees. When it goes on, so does the command, unless the lease is over.
func (c *child) suspend() {
	if c.tty == nil {
		return // stopped by somebody who will also let it go on
	}
	c.tty.take()
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // returns after SIGCONT
	c.tty.give(c.cmd.Process.Pid)
	c.Signal(syscall.SIGCONT)
}

// Signal sends a signal to the whole group.
func (c *child) Signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		_ = syscall.Kill(-c.cmd.Process.Pid, s) // ESRCH: it is ending
	}
}

// Exited is closed when the command and its group are gone.
func (c *child) Exited() <-chan struct{} { return c.exited }

// Code is the exit code, or 128 plus the signal's number.
func (c *child) Code() int { return c.code }

func exitCode(cmd *exec.Cmd, err error) int {
	if cmd.ProcessState == nil {
		return exitFailure // waiting failed
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignalled + int(status.Signal())
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return code
	}
	return exitFailure // its output could not be copied
}
