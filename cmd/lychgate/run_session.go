package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// held is what a session needs of its lease.
type held interface {
	Resource() lease.Resource
	Token() lease.Token
	Ticket() string
	TTL() time.Duration
	Remaining() time.Duration
	Warning() <-chan struct{}
	Done() <-chan struct{}
	Err() error
	Unrenewed() error
	Release(context.Context) error
}

// process is a command that runs in a process group of its own.
type process interface {
	// Signal sends a signal to the whole group; it does nothing once Exited is closed.
	Signal(syscall.Signal)
	// Exited is closed when the command has ended and nothing is left of its group.
	Exited() <-chan struct{}
	// Code is the exit code, as a shell would report it; valid once Exited is closed.
	Code() int
}

// session runs one command under a lease that is held already, and releases the lease.
type session struct {
	lease   held
	door    *door // nil: no listener
	start   func(env []string) (process, error)
	signals <-chan os.Signal
	say     func(format string, args ...any)
}

// releaseTimeout bounds how long the command's end is delayed by coordinators that do not answer.
const releaseTimeout = 5 * time.Second

// run returns the exit code of the command, or an error and its exit code if it was not started.
func (s *session) run(ctx context.Context) (code int, err error) {
	defer s.release(ctx)
	env := environment(os.Environ(), s.lease)
	if s.door != nil {
		if err := s.door.open(ctx); err != nil {
			return exitFailure, err
		}
		defer s.door.close()
		env = s.door.environment(env)
	}
	p, err := s.start(env)
	if err != nil {
		return exitNotExecutable, err
	}
	return s.supervise(p), nil
}

// supervise passes signals on and makes sure that the group is gone before the lease could be granted to
// somebody else: asked to end at the lease's warning, killed shortly before its deadline, or at once when
// the lease has ended. The lease goes on being renewed meanwhile, and a deadline that moves gives more time.
func (s *session) supervise(p process) int {
	warning, done := s.lease.Warning(), s.lease.Done()
	reserve := min(max(s.lease.TTL()/20, 50*time.Millisecond), time.Second)
	last := time.NewTimer(0)
	defer last.Stop()
	<-last.C // stopped until the warning
	for {
		select {
		case <-p.Exited():
			return p.Code()
		case sig := <-s.signals:
			if n, ok := sig.(syscall.Signal); ok {
				p.Signal(n)
			}
		case <-warning:
			warning = nil
			if s.lease.Err() == nil {
				why := "is not renewed"
				if errors.Is(s.lease.Unrenewed(), client.ErrHoldTooLong) {
					why = "has been held as long as its policy allows"
				}
				s.say("%s %s and will be lost in %v: ending the command",
					s.lease.Resource(), why, s.lease.Remaining().Round(time.Millisecond))
				p.Signal(syscall.SIGTERM)
				p.Signal(syscall.SIGCONT) // a stopped process would not see it
			}
			last.Reset(s.lease.Remaining() - reserve)
		case <-last.C:
			if left := s.lease.Remaining() - reserve; left > 0 { // renewed after all
				last.Reset(left)
				continue
			}
			s.kill(p)
		case <-done:
			done = nil
			s.say("%v: killing the command", s.lease.Err())
			s.kill(p)
		}
	}
}

// kill ends the group and then its way to the proxy.
func (s *session) kill(p process) {
	p.Signal(syscall.SIGKILL)
	if s.door != nil {
		s.door.cut()
	}
}

// release gives the lock back once nothing of the command is left. The command's exit code stands whatever
// comes of it.
func (s *session) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := s.lease.Release(ctx)
	switch {
	case err == nil:
	case errors.Is(err, client.ErrLost), errors.Is(err, client.ErrLeaseEnded):
		s.say("the lock was lost before the command had ended: %v", err)
	default:
		s.say("the lock was not given back and runs out by itself: %v", err)
	}
}
