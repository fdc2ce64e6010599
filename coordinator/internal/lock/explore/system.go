package explore

import (
	"fmt"

	"github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
)

const cluster = "c"

// Machines makes machines, in the memory of one that is not needed any more or anew.
type Machines struct {
	New     func(old *lock.Machine) *lock.Machine
	Restore func(old *lock.Machine, h lock.Header) (*lock.Restorer, error)
	Look    func(*lock.Machine) *lock.Snapshot // good until the next change
	Check   func(*lock.Machine) error          // looks at the machine from within; nil: nobody does
}

// Plainly makes machines with what every replica has.
func Plainly() Machines {
	return Machines{
		New:     func(*lock.Machine) *lock.Machine { return lock.New() },
		Restore: func(_ *lock.Machine, h lock.Header) (*lock.Restorer, error) { return lock.NewRestorer(h) },
		Look:    (*lock.Machine).Snapshot,
	}
}

// New makes the system of a scenario.
func New(s Scenario, m Machines) explore.System {
	if len(s.Asks) > maxAsks || s.Copies < 1 || s.Copies > maxCopies {
		panic("explore: the scenario " + s.Name + " is too large")
	}
	return &system{Scenario: s, machines: m}
}

// system is a machine and the world around it.
type system struct {
	Scenario
	machines Machines

	world   world
	lock    *lock.Machine
	current bool           // lock is in this state; else it has to be restored from the kept one
	index   uint64         // of the last entry
	applied lock.LeaseTime // the machine's clock
	checker *invariant.Checker
	own     bool   // the checker is not the kept one
	canon   []byte // the machine's part of the key
	fresh   bool   // canon is of this state

	kept   kept
	saved  saved // of the last look at the machine
	judge  judge
	repeat bool // a situation is not counted
	ranks  []uint64
}

// kept is the state for Back.
type kept struct {
	world   world
	index   uint64
	applied lock.LeaseTime
	checker *invariant.Checker
	saved   saved
	canon   []byte
}

func (s *system) Reset() {
	s.world, s.index, s.applied, s.repeat = world{}, 0, 0, true
	s.checker, s.own = invariant.New(s.options()), true
	s.lock, s.current = s.machines.New(s.lock), true
	if err := s.apply([]lock.Command{lock.Init{Cluster: cluster, Version: lock.MaxVersion, Config: s.Config}}); err != nil {
		panic(fmt.Sprintf("explore: the first entry: %v", err))
	}
	if s.Policy == nil {
		return
	}
	put := lock.PutPolicy{By: "admin", Target: lock.Target{Kind: lock.TargetPrefix}, Policy: *s.Policy}
	if err := s.apply([]lock.Command{put}); err != nil || len(s.machines.Look(s.lock).Header().Policies) != 1 {
		panic(fmt.Sprintf("explore: the policy was not taken: %v", err))
	}
}

func (s *system) options() invariant.Options {
	o := locktest.Options(s.Config)
	o.TokensSeen = true
	return o
}

func (s *system) Keep() {
	s.look()
	s.kept = kept{
		world: s.world, index: s.index, applied: s.applied, checker: s.checker, saved: s.saved.clone(&s.kept.saved),
		canon: append(s.kept.canon[:0], s.canon...),
	}
	s.repeat = false
}

func (s *system) Back() {
	s.world, s.index, s.applied = s.kept.world, s.kept.index, s.kept.applied
	s.checker, s.own = s.kept.checker, false
	s.canon = append(s.canon[:0], s.kept.canon...)
	s.current, s.fresh = false, true
}

// machine is the machine in this state.
func (s *system) machine() *lock.Machine {
	if !s.current {
		m, err := s.kept.saved.restore(s.machines, s.lock)
		if err != nil {
			panic(fmt.Sprintf("explore: a snapshot cannot be restored: %v", err))
		}
		s.lock, s.current = m, true
	}
	return s.lock
}

func (s *system) Take(step explore.Step) error {
	k, i, _ := parts(step)
	a := &s.world.asks[i]
	switch k {
	case begin:
		a.begun, a.copies, a.asOf = true, 1, s.applied
	case again:
		a.copies++
	case learn:
		a.answer = known
		s.meet(s.machineLacks(i), lateAnswer)
	case pass:
		s.world.now = s.world.now.Add(second)
	case contact, end, raise, late, leave, restart:
		return s.takeAtStore(k, i)
	default:
		return s.apply(s.entry(step))
	}
	return nil
}

// apply applies an entry and has everything that came out judged.
func (s *system) apply(commands []lock.Command) error {
	m := s.machine()
	s.index++
	before := m.Info()
	results, events := m.Apply(s.index, lock.Entry{Now: s.world.now, Commands: commands})
	s.applied = m.Info().Now
	applied := locktest.Applied{Now: s.applied, Config: s.Config, Commands: commands, Results: results, Events: events}
	if !s.repeat {
		s.judge.count(s, before, applied)
	}
	if err := s.observe(locktest.Steps(applied)...); err != nil {
		return err
	}
	s.follow(applied)
	s.fresh = false
	if s.repeat {
		return nil // it was judged when it was found
	}
	return errFirst(s.promises(applied), s.check())
}

func (s *system) observe(steps ...invariant.Event) error {
	if len(steps) > 0 && !s.own {
		s.checker, s.own = s.checker.Clone(), true
	}
	for _, step := range steps {
		if err := s.checker.Observe(step); err != nil {
			return err
		}
	}
	return nil
}

// follow brings the world to what the entry made of it.
func (s *system) follow(applied locktest.Applied) {
	for _, event := range applied.Events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			i, n := askOf(e.Lease)
			a := &s.world.asks[i]
			a.lease, a.token, a.answer = n+1, e.Token, inFlight
			if !a.took {
				a.took, a.effect = true, s.applied
			}
		case lock.WaitStarted:
			a := &s.world.asks[s.find(e.Client, e.Request)]
			a.took, a.effect = true, s.applied
		default:
		}
	}
	for i, result := range applied.Results {
		switch r := result.(type) {
		case lock.Granted:
			if a := &s.world.asks[s.find(r.Client, r.Request)]; a.answer == unanswered {
				a.answer = inFlight
			}
		case lock.Cancelled:
			if c := applied.Commands[i].(lock.Cancel); r.Was == lock.RequestUnknown {
				a := &s.world.asks[s.find(c.Client, c.Request)]
				a.took, a.effect = true, s.applied
			}
		default:
		}
	}
}

// takeAtStore takes a step of the store, and has every session that lives write: what lives can.
func (s *system) takeAtStore(k kind, i uint8) error {
	store := &s.world.store
	switch k {
	case contact:
		return errFirst(s.claim(i), s.writes())
	case end:
		store.End(i)
		s.meet(true, endedOld)
	case raise:
		session := store.Takeovers[i].Session
		token := store.Finish(i, s.world.asks[session].raises)
		s.world.asks[session].raises = false
		s.meet(true, tookOver)
		return errFirst(s.observe(invariant.FloorRaised{Resource: resources[i], Token: token}), s.writes())
	case late:
		s.world.asks[store.Takeovers[i].Session].raises = false
		store.GiveUp(i)
		s.meet(true, gaveUp)
	case leave:
		store.End(i)
	case restart:
		store.Restart()
		for i := range s.world.asks {
			s.world.asks[i].raises = false
		}
		s.meet(true, storeRestarted)
		for r, floor := range store.Floors {
			if err := s.observe(invariant.FloorRead{Resource: resources[r], Token: floor}); err != nil {
				return err
			}
		}
	default:
		panic("explore: not a step of the store")
	}
	return nil
}

func (s *system) claim(i uint8) error {
	a, name := &s.world.asks[i], s.Asks[i].Resource
	switch s.world.store.Claim(i, name, a.token) {
	case fence.Stale:
		s.meet(true, refusedStale)
		return s.observe(invariant.FloorRead{Resource: resources[name], Token: s.world.store.Floors[name]})
	case fence.Joined:
		s.meet(true, joinedFloor)
		return s.observe(invariant.FloorRaised{Resource: resources[name], Token: a.token})
	case fence.Begun:
		a.raises = true
	case fence.Blocked: // its client tries again later
	}
	return nil
}

func (s *system) writes() error {
	var steps []invariant.Event
	for _, b := range s.world.store.Sessions {
		if b.Bound {
			steps = append(steps, invariant.WriteAccepted{Resource: resources[b.Resource], Token: b.Token})
		}
	}
	return s.observe(steps...)
}

func errFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
