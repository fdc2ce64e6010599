package dev

import (
	"context"
	"errors"
	"fmt"
)

// stack runs services that are started one after the other and stopped in the opposite order. When one of
// them ends by itself, the stack's context does too, with the reason as its cause.
type stack struct {
	ctx      context.Context
	broke    context.CancelCauseFunc
	services []service
}

type service struct {
	stop context.CancelFunc
	done chan struct{}
	err  *error // valid after done
}

func newStack(ctx context.Context) *stack {
	s := &stack{}
	s.ctx, s.broke = context.WithCancelCause(ctx)
	return s
}

// run starts a service that blocks until its context is done. Its errors say themselves where they come from.
func (s *stack) run(name string, serve func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.ctx))
	svc := service{stop: stop, done: make(chan struct{}), err: new(error)}
	s.services = append(s.services, svc)
	go func() {
		defer close(svc.done)
		err := serve(ctx)
		if ctx.Err() == nil { // nobody asked it to end; reported here, so not by stop
			if err == nil {
				err = fmt.Errorf("%s has ended by itself", name)
			}
			s.broke(err)
			return
		}
		*svc.err = err
	}()
}

// await blocks until ch is closed, or the stack ends.
func (s *stack) await(ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// stop ends the services, the last one first, and waits for each.
func (s *stack) stop() error {
	var errs []error
	for i := len(s.services) - 1; i >= 0; i-- {
		s.services[i].stop()
		<-s.services[i].done
		errs = append(errs, *s.services[i].err)
	}
	s.services = nil
	s.broke(nil)
	return errors.Join(errs...)
}
