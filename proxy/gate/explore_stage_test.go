package gate_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// tokens are those of the clients; the first two hold one lease together.
var tokens = [...]fencestore.Token{1, 1, 2, 3}

const fenced = "r" // the resource

// phase is how far a client's connection is.
type phase uint8

const (
	idle phase = iota
	admitting
	admitted
	connected
	joining
	bound
)

// contact is a client.
type contact struct {
	phase   phase
	alive   bool // its session is
	started int64
	session *gate.Session
	plan    gate.Plan
	told    *atomic.Bool   // its gate ended it
	ending  chan error     // a takeover waits for its session to be gone
	done    chan error     // of a call of its
	waits   bool           // the call waits behind another one
	planned chan gate.Plan // of Admit
}

// stage is a real gate and a real store, and the clients before them.
type stage struct {
	t        *testing.T
	gate     *gate.Gate
	store    *memstore.Store
	ctx      context.Context
	cancel   context.CancelFunc
	clients  [len(tokens)]contact
	newest   fencestore.Token // that the watch told of
	watching chan error       // its call
	floor    fencestore.Token
	checker  *invariant.Checker
	taken    []explore.Step
	kept     []explore.Step
	repeat   bool
	met      map[string]int
}

// clear lets every call come to its end.
func (s *stage) clear() {
	if s.cancel != nil {
		s.cancel()
		synctest.Wait()
	}
}

// Reset goes to the first state.
func (s *stage) Reset() {
	s.clear()
	*s = stage{t: s.t, met: s.met, kept: s.kept, taken: s.taken[:0], repeat: true, checker: invariant.New(invariant.Options{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.store = memstore.New(memstore.Config{
		Alive: func(id fencestore.Session) bool {
			c := &s.clients[id.PID-1]
			return c.alive && c.started == id.Started
		},
		End: s.end(s.ctx),
	})
	var err error
	s.gate, err = gate.New(gate.Config{
		Listener: "l", Adapter: "a", Policy: gate.Require, Store: s.store, AllowUnsigned: true, Leases: s,
		Cluster: func() string { return cluster },
	})
	if err != nil {
		panic(err)
	}
}

// Newest is the coordinator's word.
func (s *stage) Newest(string, string) fencestore.Token { return s.newest }

// Ended knows of nothing.
func (s *stage) Ended(string) bool { return false }

// end is the store's: a session is gone when a step says so.
func (s *stage) end(over context.Context) func(context.Context, fencestore.Session) error {
	return func(ctx context.Context, id fencestore.Session) error {
		told := make(chan error, 1)
		s.clients[id.PID-1].ending = told
		select {
		case err := <-told:
			return err
		case <-over.Done():
			return ctx.Err()
		}
	}
}

// Keep remembers the state, and Back returns to it by taking its steps again.
func (s *stage) Keep() { s.kept, s.repeat = slices.Clone(s.taken), false }

// Back returns to the state that was kept.
func (s *stage) Back() {
	s.Reset()
	for _, step := range s.kept {
		if err := s.Take(step); err != nil {
			panic(err)
		}
	}
	s.repeat = false
}

// Situations counts what was met.
func (s *stage) Situations() map[string]int { return s.met }

func (s *stage) meet(is bool, name string) {
	if is && !s.repeat {
		s.met[name]++
	}
}

// calls is how many are under way.
func (s *stage) calls() int {
	n := 0
	for i := range s.clients {
		if s.clients[i].done != nil {
			n++
		}
	}
	if s.watching != nil {
		n++
	}
	return n
}

// Take takes a step, and judges what all that it led to has said.
func (s *stage) Take(step explore.Step) error {
	s.taken = append(s.taken, step)
	i := uint8(step)
	c := &s.clients[i]
	busy := s.calls() > 0
	switch int(step >> 8) {
	case admit:
		s.admit(c, i)
		c.waits = busy
	case connect:
		told := new(atomic.Bool)
		c.phase, c.alive, c.told = connected, true, told
		c.started++
		c.session = s.gate.Session(fencestore.Session{PID: int64(i) + 1, Started: c.started}, "", func(*gate.Refusal) { told.Store(true) })
	case join:
		c.phase, c.done, c.waits = joining, make(chan error, 1), busy
		go func(done chan error) { done <- c.session.Join(s.ctx, c.plan.Claims) }(c.done)
	case leave:
		if err := c.session.Leave(s.ctx, c.plan.Claims); err != nil {
			return err
		}
		c.phase = connected
	case die:
		s.dies(c)
	case gone:
		c.alive = false
		s.meet(c.phase == bound, "fenced while it was bound")
		s.settle(nil, c)
	case notGone:
		s.settle(errors.New("it lives"), s.ending()...)
	case overtake:
		s.newest = tokens[i]
		s.watching = make(chan error, 1)
		go func(done chan error) {
			_, err := s.gate.Overtake(s.ctx, fencestore.Claim{Cluster: cluster, Resource: fenced, Token: tokens[i]})
			done <- err
		}(s.watching)
	}
	synctest.Wait()
	return s.judge()
}

func (s *stage) admit(c *contact, i uint8) {
	c.phase, c.done, c.planned = admitting, make(chan error, 1), make(chan gate.Plan, 1)
	go func(done chan error, planned chan gate.Plan) {
		plan, err := s.gate.Admit(s.ctx, gate.Shown{Unsigned: []gate.Unsigned{{Resource: fenced, Token: fmt.Sprint(tokens[i])}}})
		planned <- plan
		done <- err
	}(c.done, c.planned)
}

func (s *stage) dies(c *contact) {
	c.phase, c.alive, c.told = idle, false, new(atomic.Bool)
	if c.session != nil {
		c.session.Abandon()
		c.session = nil
	}
	s.settle(nil, c)
}

func (s *stage) ending() (all []*contact) {
	for i := range s.clients {
		if s.clients[i].ending != nil {
			all = append(all, &s.clients[i])
		}
	}
	return all
}

// settle tells takeovers what has become of sessions, of all at once: one that ends lets the next begin.
func (s *stage) settle(err error, clients ...*contact) {
	var waiting []chan error
	for _, c := range clients {
		if c.ending != nil {
			waiting = append(waiting, c.ending)
			c.ending = nil
		}
	}
	for _, told := range waiting {
		told <- err
	}
}

// judge hears the calls that have ended, looks at the floor, and has every session write that is bound and lives.
func (s *stage) judge() error {
	var raised []fencestore.Token
	for i := range s.clients {
		c := &s.clients[i]
		select {
		case err := <-c.done:
			if s.answered(c, err) {
				raised = append(raised, tokens[i])
			}
			c.done, c.waits = nil, false
		default:
		}
	}
	select {
	case err := <-s.watching:
		if s.watching = nil; err == nil {
			s.meet(true, "raised by the watch")
			raised = append(raised, s.newest)
		}
	default:
	}
	slices.SortFunc(raised, cmp.Compare)
	for _, token := range raised {
		if err := s.checker.Observe(invariant.FloorRaised{Resource: fenced, Token: lease.Token(token)}); err != nil {
			return err
		}
	}
	return s.write()
}

// answered takes the answer to a client's call; it reports whether the floor is at least at its token now.
func (s *stage) answered(c *contact, err error) bool {
	var refusal *gate.Refusal
	if errors.As(err, &refusal) {
		s.meet(refusal.Reason == gate.StaleToken, "refused as stale")
		s.meet(refusal.Reason == gate.StaleToken && c.phase == joining, "refused as stale behind an open connection")
		s.meet(refusal.Reason == gate.TakeoverTimeout, "timed out")
		s.dies(c)
		return false
	}
	if c.phase == admitting {
		s.meet(true, "admitted")
		s.meet(c.waits, "admitted behind a takeover")
		c.phase, c.plan = admitted, <-c.planned
		return true
	}
	s.meet(true, "bound")
	c.phase = bound
	return true
}

func (s *stage) write() error {
	floor, err := s.store.Floor(s.ctx, cluster, fenced)
	if err != nil {
		return err
	}
	s.floor = floor.Token
	if err := s.checker.Observe(invariant.FloorRead{Resource: fenced, Token: lease.Token(floor.Token)}); err != nil {
		return err
	}
	for i := range s.clients {
		c := &s.clients[i]
		switch {
		case c.phase != bound:
		case c.alive:
			if err := s.checker.Observe(invariant.WriteAccepted{Resource: fenced, Token: lease.Token(tokens[i])}); err != nil {
				return err
			}
		case tokens[i] < floor.Token && !c.told.Load():
			return fmt.Errorf("client %d was fenced by token %d, and its gate has not said so", i, floor.Token)
		}
	}
	return nil
}
