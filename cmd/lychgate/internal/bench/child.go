package bench

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

// children are the processes of a run. None outlives it.
type children struct {
	mu      sync.Mutex
	running []*child
	closed  bool
}

// child is one process, and the group whose number is its own.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
}

var errClosing = errors.New("the run is ending")

// start starts cmd. It dies with this process, however that ends.
func (c *children) start(cmd *exec.Cmd) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosing
	}
	cmd.SysProcAttr = attributes()
	p := &child{cmd: cmd, exited: make(chan struct{})}
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

// close kills what runs and waits for it. Nothing is started any more.
func (c *children) close() {
	c.mu.Lock()
	c.closed = true
	running := slices.Clone(c.running)
	c.mu.Unlock()
	for _, p := range running {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range running {
		<-p.exited
	}
}

func (p *child) pid() int { return p.cmd.Process.Pid }

// signal signals the process unless it has ended.
func (p *child) signal(s os.Signal) {
	_ = p.cmd.Process.Signal(s) // os.ErrProcessDone: it has ended
}

// kill ends the process as a power cut ends it, and waits for that.
func (p *child) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// ended reports whether the process has ended.
func (p *child) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
