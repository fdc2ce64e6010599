// Package fence is what a fence store does, written from its contract alone and in steps: a takeover decides, ends the
// sessions under lower tokens one after the other, and raises the floor, and between any two of these steps everything
// else can happen. It is a value: to copy a Store is to remember it.
//
// The explorer of fencestore/memstore holds the model against a real store.
package fence

import "github.com/lychgate/lychgate/coordinator/lease"

// The sizes of a model.
const (
	Resources = 2
	Sessions  = 4
)

// Nobody is the session of a claim that needs none.
const Nobody = 255

// Session is a connection to the store. The zero value is not there.
type Session struct {
	Bound    bool        // and alive: what it sends takes effect
	Resource uint8       // while it is bound
	Token    lease.Token // while it is bound
}

// Takeover is one that has decided and not ended. The resource is locked while it lasts.
type Takeover struct {
	Running bool
	Session uint8 // that asks
	Token   lease.Token
}

// Store is the floors and sessions of one store. The zero value is an empty one.
type Store struct {
	Floors    [Resources]lease.Token
	Sessions  [Sessions]Session
	Takeovers [Resources]Takeover
}

// Verdict is what a store says to a claim.
type Verdict uint8

// The verdicts.
const (
	Stale   Verdict = iota + 1 // the floor is above the token; nothing changed
	Joined                     // the session is bound under the floor
	Begun                      // a takeover: the claim has to wait for its end
	Blocked                    // another takeover has the lock: the claim has to wait for its end
)

// Claim asks for the session to be bound, or, with Nobody, for the floor to be raised. A session that is bound to the
// resource already may raise itself; it must not be bound to another one.
func (s *Store) Claim(session, resource uint8, token lease.Token) Verdict {
	switch floor := s.Floors[resource]; {
	case s.Takeovers[resource].Running:
		return Blocked
	case token < floor:
		return Stale
	case token == floor:
		s.bind(session, resource, token)
		return Joined
	}
	s.Takeovers[resource] = Takeover{Running: true, Session: session, Token: token}
	return Begun
}

// Lower reports whether the takeover of the resource still has to end the session.
func (s *Store) Lower(session, resource uint8) bool {
	t, b := s.Takeovers[resource], s.Sessions[session]
	return t.Running && b.Bound && b.Resource == resource && b.Token < t.Token && session != t.Session
}

// End ends a session, whoever asks for it: a takeover, its own client, or a fault. A takeover that it asked for goes on.
func (s *Store) End(session uint8) {
	s.Sessions[session] = Session{}
	for r := range s.Takeovers {
		if t := &s.Takeovers[r]; t.Running && t.Session == session {
			t.Session = Nobody
		}
	}
}

// Ready reports whether the takeover of the resource has nobody left to end.
func (s *Store) Ready(resource uint8) bool {
	for i := range s.Sessions {
		if s.Lower(uint8(i), resource) {
			return false
		}
	}
	return s.Takeovers[resource].Running
}

// Finish raises the floor and binds the session that asked, if it is still wanted. The takeover must be Ready.
func (s *Store) Finish(resource uint8, bind bool) lease.Token {
	t := s.Takeovers[resource]
	s.Takeovers[resource], s.Floors[resource] = Takeover{}, t.Token
	if bind {
		s.bind(t.Session, resource, t.Token)
	}
	return t.Token
}

func (s *Store) bind(session, resource uint8, token lease.Token) {
	if session != Nobody {
		s.Sessions[session] = Session{Bound: true, Resource: resource, Token: token}
	}
}

// GiveUp ends the takeover of the resource without a raise: its time is over. Sessions that were ended stay so.
func (s *Store) GiveUp(resource uint8) { s.Takeovers[resource] = Takeover{} }

// Restart is a crash of the store: sessions and takeovers are gone, floors are not.
func (s *Store) Restart() { *s = Store{Floors: s.Floors} }
