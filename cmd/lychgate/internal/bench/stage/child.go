// Package stage is what a bench stands on: its folder, the processes that it starts, of which none outlives it, and what
// the system knows about them.
package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
)

// Children are the processes of a run. None outlives it.
type Children struct {
	mu      sync.Mutex
	running []*Child
	closed  bool
}

// Child is one process, and the group whose number is its own.
type Child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
}

// ErrClosing is the error of a start after Close.
var ErrClosing = errors.New("the run is ending")

// Start starts cmd, under the account that its SysProcAttr.Credential names. It dies with this process, however that ends.
func (c *Children) Start(cmd *exec.Cmd) (*Child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosing
	}
	own := attributes()
	if cmd.SysProcAttr != nil {
		own.Credential = cmd.SysProcAttr.Credential
	}
	cmd.SysProcAttr = own
	p := &Child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG), so this
		// thread must live as long as the child. It ends with this goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	c.running = append(c.running, p)
	return p, nil
}

// Close kills what runs and waits for it. Nothing is started any more.
func (c *Children) Close() {
	c.mu.Lock()
	c.closed = true
	running := slices.Clone(c.running)
	c.mu.Unlock()
	for _, p := range running {
		p.Signal(syscall.SIGKILL)
	}
	for _, p := range running {
		<-p.exited
	}
}

// PID is the number of the process.
func (p *Child) PID() int { return p.cmd.Process.Pid }

// Signal signals the process unless it has ended.
func (p *Child) Signal(s os.Signal) {
	_ = p.cmd.Process.Signal(s) // os.ErrProcessDone: it has ended
}

// Kill ends the process as a power cut ends it, and waits for that.
func (p *Child) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Ended reports whether the process has ended.
func (p *Child) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Exited is closed once the process has ended.
func (p *Child) Exited() <-chan struct{} { return p.exited }

// Err tells how a process ended that has; nil is the exit code 0.
func (p *Child) Err() error {
	<-p.exited
	return p.err
}
