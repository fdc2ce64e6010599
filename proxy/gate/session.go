package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// Session is one live connection to the store. Its methods may be called from several goroutines, but the adapter
// orders its own Join, Leave and Close: what was left is not joined again before Leave has returned.
type Session struct {
	gate   *Gate
	id     fencestore.Session
	number uint64 // unlike any other of this process
	client string
	end    func(*Refusal)
	held   map[key]entry // guarded by gate.mu
}

// Session names a connection that the adapter has opened: id as the store itself names it, client for the table.
// end is called when a binding of this session was ended by this gate, perhaps more than once; it only signals and
// returns at once. The adapter counts what it then tells its client. Nothing is bound yet.
func (g *Gate) Session(id fencestore.Session, client string, end func(*Refusal)) *Session {
	return &Session{gate: g, id: id, number: g.config.Numbers.Add(1), client: client, end: end, held: map[key]entry{}}
}

// Join binds the session to every claim, in the plan's order, or to none of them: when one is refused the others
// that were new are left again, even if ctx is done by then, which takes at most RaiseTimeout. Where the store fails
// at that too, bindings are left over; they are safe and end with the session, and the refusal's Err names them. The
// session must be idle. Every error is a *Refusal and has been counted.
func (s *Session) Join(ctx context.Context, claims []fencestore.Claim) error {
	var joined []fencestore.Claim
	for _, claim := range claims {
		isNew, refusal := s.join(ctx, claim)
		if isNew {
			joined = append(joined, claim)
		}
		if refusal != nil {
			s.undo(ctx, joined, refusal)
			return s.gate.Refused(refusal)
		}
	}
	return nil
}

// undo leaves what was joined before the refusal. A caller who has gone does not stop it.
func (s *Session) undo(ctx context.Context, joined []fencestore.Claim, refusal *Refusal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.gate.config.RaiseTimeout)
	defer cancel()
	if err := s.Leave(ctx, joined); err != nil {
		refusal.Err = errors.Join(refusal.Err, err)
	}
}

// join enters the claim into the table first, so that neither an end of its lease nor a newer token can slip between
// store and table: who is told of one looks at the table, and who has entered looks at what was told. isNew
// says that there is something to leave again, or may be: a store that gives no clear answer may have bound it.
func (s *Session) join(ctx context.Context, claim fencestore.Claim) (isNew bool, _ *Refusal) {
	before, had, refusal := s.gate.enter(s, claim)
	if refusal != nil {
		return false, refusal
	}
	if refusal := s.gate.foresee(ctx, claim); refusal != nil {
		s.gate.restore(s, claim, before, had)
		return false, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, s.gate.config.RaiseTimeout)
	defer cancel()
	begin := time.Now()
	accepted, err := s.gate.config.Store.Bind(ctx, claim, s.id)
	if err != nil {
		s.gate.restore(s, claim, before, had)
		var decided *fencestore.Refusal
		return !had && !errors.As(err, &decided), refusedByStore(claim, err)
	}
	s.gate.config.Observer.BindTook(s.gate.config.Adapter, time.Since(begin))
	s.gate.accepted(claim, accepted, byContact)
	return !had, nil
}

// Leave unbinds claims of a session that lives on. The caller vouches that nothing which they carried is in flight.
// On an error the bindings stay in the store, which is safe: the session is ended with them.
func (s *Session) Leave(ctx context.Context, claims []fencestore.Claim) error {
	var errs []error
	for _, claim := range claims {
		ctx, cancel := context.WithTimeout(ctx, s.gate.config.RaiseTimeout)
		_, err := s.gate.config.Store.Unbind(ctx, claim, s.id, true)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("unbind %s: %w", claim.Resource, err))
			continue
		}
		s.gate.leave(s, claim)
	}
	return errors.Join(errs...)
}

// Close takes the session out of the table and unbinds it as its end is confirmed by the store, which it awaits
// for a bounded time; a binding that is left then is removed by the next takeover. The adapter has closed the
// connection before. It blocks.
func (s *Session) Close(ctx context.Context) error {
	claims := s.Claims()
	s.gate.leaveAll(s)
	ctx, cancel := context.WithTimeout(ctx, s.gate.config.GoneFor)
	defer cancel()
	var errs []error
	for _, claim := range claims {
		errs = append(errs, s.awaitGone(ctx, claim))
	}
	return errors.Join(errs...)
}

// Abandon takes the session out of the table and leaves its rows in the store to the next takeover or sweep, which
// finds the session gone. It is Close for an adapter that has too many to wait for, and does not block.
func (s *Session) Abandon() { s.gate.leaveAll(s) }

// awaitGone asks more and more rarely: a backend that was idle is gone in a few milliseconds, one that computes
// may take minutes to notice that its client left.
func (s *Session) awaitGone(ctx context.Context, claim fencestore.Claim) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		gone, err := s.gate.config.Store.Unbind(ctx, claim, s.id, false)
		if gone && err == nil {
			return nil
		}
		if !wait(ctx, pause) {
			return fmt.Errorf("unbind %s: session not confirmed gone: %w", claim.Resource, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Explain finds out why the store ended the session: a StaleToken refusal when a floor is now above one of its
// tokens, nil when the floors do not explain it. Older sessions end before the new floor is visible, so it
// keeps asking for a bounded time. It blocks. The adapter counts what it then tells its client.
func (s *Session) Explain(ctx context.Context) *Refusal {
	claims := s.Claims()
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.gate.config.ExplainFor)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		floors, err := s.floors(ctx, claims)
		if err == nil {
			if r := explainEnd(claims, floors); r != nil {
				return r
			}
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// Stale asks once whether one of the session's tokens is below its floor now.
func (s *Session) Stale(ctx context.Context) *Refusal {
	claims := s.Claims()
	floors, err := s.floors(ctx, claims)
	if err != nil {
		return nil
	}
	return explainEnd(claims, floors)
}

func (s *Session) floors(ctx context.Context, claims []fencestore.Claim) ([]fencestore.Floor, error) {
	floors := make([]fencestore.Floor, len(claims))
	for i, c := range claims {
		f, err := s.gate.config.Store.Floor(ctx, c.Cluster, c.Resource)
		if err != nil {
			return nil, err
		}
		floors[i] = f
	}
	return floors, nil
}

// wait reports false when ctx is done before the pause is over.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
