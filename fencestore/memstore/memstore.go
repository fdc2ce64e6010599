// Package memstore keeps floors and bindings in memory: for tests of what stands above a store, and the
// shortest statement of what a store does. It forgets everything with the process, so it fences nothing
// that matters.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/internal/keylock"
)

const defaultTimeout = 5 * time.Second

// Config says how sessions are looked at and ended. The zero value takes every session for alive until the
// store ends it, which then succeeds at once.
type Config struct {
	// Alive reports whether the session exists and can be bound. Nil: alive until ended. It must not call
	// the store.
	Alive func(fencestore.Session) bool
	// End ends the session and returns nil when it is confirmed gone; ctx carries the deadline of the
	// takeover. It is called concurrently for all sessions of one takeover. Nil: gone at once.
	End func(context.Context, fencestore.Session) error
	// Timeout bounds a takeover; 0: 5 s.
	Timeout time.Duration
	// Now is the store's clock; nil: time.Now.
	Now func() time.Time
}

// Store is a fencestore.Store in memory.
type Store struct {
	cfg   Config
	locks keylock.Locks // a resource is decided by one caller at a time

	mu       sync.Mutex
	cluster  string // "" until the first claim was accepted
	closed   bool
	floors   map[string]fencestore.Floor
	bindings map[key]fencestore.Binding
	ended    map[fencestore.Session]bool
}

type key struct {
	resource string
	session  fencestore.Session
}

var _ fencestore.Store = (*Store)(nil)

// New makes an empty store.
func New(cfg Config) *Store {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{
		cfg:      cfg,
		floors:   map[string]fencestore.Floor{},
		bindings: map[key]fencestore.Binding{},
		ended:    map[fencestore.Session]bool{},
	}
}

// Raise implements fencestore.Store.
func (s *Store) Raise(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	return s.decide(ctx, claim, nil)
}

// Bind implements fencestore.Store.
func (s *Store) Bind(ctx context.Context, claim fencestore.Claim, session fencestore.Session) (fencestore.Accepted, error) {
	return s.decide(ctx, claim, &session)
}

func (s *Store) decide(ctx context.Context, claim fencestore.Claim, session *fencestore.Session) (fencestore.Accepted, error) {
	begun := s.cfg.Now()
	unlock, err := s.locks.Lock(ctx, claim.Resource)
	if err != nil {
		return fencestore.Accepted{}, fmt.Errorf("wait for another decision on %s: %w", claim.Resource, err)
	}
	defer unlock()
	lower, err := s.admit(claim, session)
	if err != nil {
		return fencestore.Accepted{}, err
	}
	if seeded.Is(seeded.OldBindingKept) {
		lower = nil
	}
	if err := s.endAll(ctx, lower); err != nil && !seeded.Is(seeded.FloorBeforeEnd) {
		return fencestore.Accepted{}, &fencestore.Refusal{
			Reason: fencestore.TakeoverTimeout, Claim: claim, Err: err,
			Detail: "not every session of an earlier holder was confirmed gone in time",
		}
	}
	takeover := s.register(claim, session)
	return fencestore.Accepted{Takeover: takeover, Ended: len(lower), Took: s.cfg.Now().Sub(begun)}, nil
}

// admit decides against the claim, or says whom a takeover must end first.
func (s *Store) admit(claim fencestore.Claim, session *fencestore.Session) ([]fencestore.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse(claim, session); err != nil {
		return nil, err
	}
	s.cluster = claim.Cluster
	var lower []fencestore.Session
	for k, b := range s.bindings {
		own := session != nil && k.session == *session
		if k.resource == claim.Resource && b.Token < claim.Token && !own && s.alive(k.session) {
			lower = append(lower, k.session)
		}
	}
	return lower, nil
}

func (s *Store) refuse(claim fencestore.Claim, session *fencestore.Session) error {
	floor := s.floors[claim.Resource]
	switch {
	case claim.Token < 1 || claim.Token >= 1<<53:
		return &fencestore.Refusal{Reason: fencestore.BadToken, Claim: claim, Detail: "a token is 1 to 2^53 - 1"}
	case s.notReady(claim.Cluster) != "" && !seeded.Is(seeded.OtherClusterTaken):
		return &fencestore.Refusal{Reason: fencestore.NotReady, Claim: claim, Detail: s.notReady(claim.Cluster)}
	case floor.Token > claim.Token && !seeded.Is(seeded.FloorGoesDown),
		floor.Token == claim.Token && seeded.Is(seeded.FloorAboveOnly):
		return &fencestore.Refusal{Reason: fencestore.StaleToken, Claim: claim, Floor: floor}
	case session != nil && !s.alive(*session):
		return &fencestore.Refusal{Reason: fencestore.NotAllowed, Claim: claim, Detail: "there is no such session"}
	}
	return nil
}

func (s *Store) notReady(cluster string) string {
	switch {
	case s.closed:
		return "the store is closed"
	case s.cluster != "" && s.cluster != cluster:
		return fmt.Sprintf("the store is pinned to cluster %s, not %s", s.cluster, cluster)
	}
	return ""
}

func (s *Store) alive(session fencestore.Session) bool {
	if s.cfg.Alive != nil {
		return s.cfg.Alive(session)
	}
	return !s.ended[session]
}

// endAll ends the sessions together and returns when every one is confirmed gone.
func (s *Store) endAll(ctx context.Context, sessions []fencestore.Session) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	failures := make([]error, len(sessions))
	var all sync.WaitGroup
	for i, session := range sessions {
		all.Go(func() { failures[i] = s.end(ctx, session) })
	}
	all.Wait()
	return errors.Join(failures...)
}

func (s *Store) end(ctx context.Context, session fencestore.Session) error {
	if s.cfg.End != nil {
		if err := s.cfg.End(ctx, session); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[session] = true
	return nil
}

func (s *Store) register(claim fencestore.Claim, session *fencestore.Session) (takeover bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if takeover = s.floors[claim.Resource].Token < claim.Token; takeover || seeded.Is(seeded.FloorGoesDown) {
		s.floors[claim.Resource] = fencestore.Floor{Resource: claim.Resource, Token: claim.Token, Since: now}
	}
	for k, b := range s.bindings {
		if k.resource == claim.Resource && b.Token < claim.Token {
			delete(s.bindings, k)
		}
	}
	if session != nil {
		s.bindings[key{claim.Resource, *session}] = fencestore.Binding{Claim: claim, Session: *session, Since: now}
	}
	return takeover
}

// Unbind implements fencestore.Store.
func (s *Store) Unbind(_ context.Context, claim fencestore.Claim, session fencestore.Session, idle bool) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{claim.Resource, session}
	if _, bound := s.bindings[k]; bound && !idle && s.alive(session) {
		return false, nil
	}
	delete(s.bindings, k)
	return true, nil
}

// Floor implements fencestore.Store.
func (s *Store) Floor(_ context.Context, cluster, resource string) (fencestore.Floor, error) {
	if err := s.Check(context.Background(), cluster); err != nil {
		return fencestore.Floor{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	floor := s.floors[resource]
	floor.Resource = resource
	return floor, nil
}

// Bindings implements fencestore.Store.
func (s *Store) Bindings(_ context.Context, cluster string, limit int) ([]fencestore.Binding, error) {
	if err := s.Check(context.Background(), cluster); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []fencestore.Binding
	for k, b := range s.bindings {
		if s.alive(k.session) {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b fencestore.Binding) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Session.PID, b.Session.PID))
	})
	return list[:min(limit, len(list))], nil
}

// Check implements fencestore.Store.
func (s *Store) Check(_ context.Context, cluster string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if detail := s.notReady(cluster); detail != "" {
		return &fencestore.Refusal{Reason: fencestore.NotReady, Claim: fencestore.Claim{Cluster: cluster}, Detail: detail}
	}
	return nil
}

// Close implements fencestore.Store: what comes after it is refused as not ready.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
