package simulate

import (
	"time"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// store is one store with one resource: the model of package fence, whose sessions belong to clients.
type store struct {
	world    *world
	name     lease.Resource
	model    fence.Store
	sessions [fence.Sessions]*session
}

// session is a connection; it has its place in the model until it has ended.
type session struct {
	store *store
	place uint8
	owner *client
	over  bool
}

const (
	takeoverTimeout = 5 * time.Second
	retryClaim      = 200 * time.Millisecond
)

func (s *store) open(c *client) *session {
	for i := range s.sessions {
		if s.sessions[i] == nil {
			s.sessions[i] = &session{store: s, place: uint8(i), owner: c}
			return s.sessions[i]
		}
	}
	return nil
}

// end ends a session: nothing that it sends takes effect from here on.
func (n *session) end() {
	if !n.over {
		n.over = true
		n.store.model.End(n.place)
		n.store.sessions[n.place] = nil
		n.store.ready()
	}
}

func (c *client) storeOf(name lease.Resource) *store {
	for _, s := range c.world.stores {
		if s.name == name {
			return s
		}
	}
	panic("simulate: a resource without a store")
}

// connect opens a session for a lease, shows the token and goes on until the session is bound.
func (c *client) connect(h *holding) {
	if !c.holds(h) {
		return
	}
	if h.session == nil || h.session.over {
		h.session = c.storeOf(h.resource).open(c)
	}
	if n := h.session; n != nil {
		c.world.carry(func() { n.claim(c, h) })
	}
	c.after(c.world.between(retryClaim, h.ttl/3+retryClaim), func() { c.again(h) })
}

// again connects if there is no session that is bound.
func (c *client) again(h *holding) {
	if c.held == h && (h.session == nil || h.session.over || !h.session.store.model.Sessions[h.session.place].Bound) {
		c.connect(h)
	}
}

// claim arrives at the store.
func (n *session) claim(c *client, h *holding) {
	if n.over {
		return
	}
	s, w := n.store, n.store.world
	switch s.model.Claim(n.place, 0, h.token) {
	case fence.Stale:
		w.meet("a store refused a stale token")
		s.observe(invariant.FloorRead{Resource: s.name, Token: s.model.Floors[0]})
	case fence.Joined:
		w.meet("a session joined under the floor")
		s.observe(invariant.FloorRaised{Resource: s.name, Token: h.token})
		n.bound(c, h)
	case fence.Begun:
		s.takeover(c, h)
	case fence.Blocked:
		w.meet("a claim waited for a takeover")
	}
}

// bound tells the client, which begins to write.
func (n *session) bound(c *client, h *holding) {
	w := n.store.world
	if w.strikes(LostBinds, 300) {
		w.fault("a store's answer was lost")
		return
	}
	w.carry(func() { c.after(0, func() { c.write(h) }) })
}

func (s *store) takeover(c *client, h *holding) {
	w := s.world
	taken := s.model.Takeovers[0]
	begun := taken.Token
	if taken.Session != fence.Nobody {
		n := s.sessions[taken.Session]
		w.after(takeoverTimeout, func() {
			if t := s.model.Takeovers[0]; t.Running && t.Token == begun && !s.model.Ready(0) {
				w.meet("a takeover came to its deadline")
				s.model.GiveUp(0)
			}
		})
		for i, o := range s.sessions {
			if o != nil && s.model.Lower(uint8(i), 0) {
				w.after(w.ending(), func() {
					if !o.over {
						w.meet("a takeover ended a session")
						o.end()
					}
				})
			}
		}
		w.after(0, s.ready)
		w.after(w.between(0, 20*time.Millisecond), func() {
			if !n.over && s.model.Sessions[n.place].Bound {
				n.bound(c, h)
			}
		})
	}
}

// ending is how long the end of a session takes.
func (w *world) ending() time.Duration {
	if w.strikes(StuckSessions, 300) {
		w.fault("a session was stuck")
		return w.between(time.Second, 2*takeoverTimeout)
	}
	return w.between(0, 15*time.Millisecond)
}

// ready raises the floor when no session is in the way.
func (s *store) ready() {
	if !s.model.Ready(0) {
		return
	}
	token := s.model.Finish(0, true)
	s.world.meet("a takeover raised the floor")
	s.world.tell("the floor of %s is %d", s.name, token)
	s.observe(invariant.FloorRaised{Resource: s.name, Token: token})
}

// write sends writes for as long as the client takes the lease for held.
func (c *client) write(h *holding) {
	if !c.holds(h) || h.session == nil {
		return
	}
	c.put(h)
	c.after(c.world.about(h.ttl), func() { c.write(h) })
}

// put sends one write. It may be on its way for long, and takes effect if the session is bound when it arrives.
func (c *client) put(h *holding) {
	n, w := h.session, c.world
	if n == nil {
		return
	}
	w.carry(func() {
		b := n.store.model.Sessions[n.place]
		if n.over || !b.Bound {
			w.meet("a write came to an end with its session")
			return
		}
		w.out.Operations++
		w.meet("a write took effect")
		n.store.observe(invariant.WriteAccepted{Resource: n.store.name, Token: b.Token})
	})
}

// leave closes the session of a lease that is over, as its client thinks; not always.
func (c *client) leave(h *holding) {
	if n := h.session; n != nil && c.world.chance(700) {
		c.world.carry(n.end)
	}
}

func (s *store) observe(e invariant.Event) {
	s.world.note("store", uint64(s.model.Floors[0]))
	s.world.judge.observe(e)
}

// restart is a crash of the store.
func (s *store) restart() {
	for _, n := range s.sessions {
		if n != nil {
			n.over = true
		}
	}
	s.sessions = [fence.Sessions]*session{}
	s.model.Restart()
	s.observe(invariant.FloorRead{Resource: s.name, Token: s.model.Floors[0]})
}
