package postgres

import (
	"errors"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// showing is a SET or RESET of fence.ticket on its way to being bound, which happens before the statement goes to the
// server, at a moment at which nothing is outstanding. The client's messages wait until then.
type showing struct {
	at     showingState
	claims []fencestore.Claim
	err    error
}

type showingState uint8

const (
	verifying showingState = iota
	quieting               // verified: waits until nothing is outstanding
	binding
	bound // or refused
)

// showTicket executes a SET or RESET of fence.ticket. It is called again and again with the same message until it is
// done. instead is the body that goes to the server, without the secret.
func (r *relay) showTicket(b *burst, m message, s sqltext.Statement, kind track.Kind, instead ...[]byte) (next, error) {
	if r.up.showing == nil {
		r.up.showing = &showing{}
		r.verify(r.up.showing, s)
	}
	show := r.up.showing
	if show.at == quieting {
		n, err := r.quiesce(b)
		switch {
		case n != done:
			return n, nil
		case err != nil:
			show.at, show.err = bound, err
		default:
			r.joinNow(show)
		}
	}
	if show.at != bound {
		return wait, nil
	}
	r.up.showing = nil
	var refusal *gate.Refusal
	switch {
	case errors.As(show.err, &refusal):
		return r.refuseCounted(b, m, kind, nil, refusal)
	case errors.Is(show.err, errSkipping):
		r.up.body.skip(b, m) // an earlier message of the batch has failed: the server would not have looked at this one
		return done, nil
	case show.err != nil:
		return done, show.err
	}
	return r.carryOut(b, m, s, kind, show.claims, instead)
}

// verify asks for nothing but the ticket itself, so that a bad one is refused wherever it stands.
func (r *relay) verify(show *showing, s sqltext.Statement) {
	if s.Kind != sqltext.SetTicket {
		show.at = quieting
		return
	}
	tickets := s.Tickets()
	var plan gate.Plan
	var err error
	r.job(func() { plan, err = r.gate.Plan(r.ctx, gate.Shown{Tickets: tickets}) }, func() {
		show.claims, show.err, show.at = plan.Claims, err, quieting
		if err != nil {
			show.at = bound
		}
	})
}

// joinNow binds the session, which is quiet and stays so: nothing goes to the server before it is done.
func (r *relay) joinNow(show *showing) {
	switch {
	case len(show.claims) == 0:
		show.at = bound
		return
	case r.session.cannotBind != nil:
		show.at, show.err = bound, r.gate.Refused(r.session.cannotBind)
		return
	case !r.talk.Bindable():
		show.at, show.err = bound, r.gate.Refused(notAllowed("A ticket can be shown between transactions, or as the first statement of one: "+
			"an older snapshot would read what the new holder must not see.", "Set it first in the next transaction."))
		return
	case r.leaving > 0:
		return // what is being left is not joined again before it is gone
	}
	show.at = binding
	var err error
	r.job(func() { err = r.session.member.Join(r.session.server.hard, show.claims) }, func() { show.at, show.err = bound, err })
}

// carryOut lets the statement of a ticket that is bound go on, and behind it what asks the session to be read-only or
// takes that back.
func (r *relay) carryOut(b *burst, m message, s sqltext.Statement, kind track.Kind, claims []fencestore.Claim, instead [][]byte) (next, error) {
	before := r.reading()
	if s.Kind == sqltext.ResetTicket {
		r.fences.reset()
	} else {
		r.fences.add(claims, s.Local)
	}
	after := r.reading()
	if after != before && (after.now || after.later) {
		r.session.log.Debug(askedToRead)
	}
	n, err := r.replace(b, m, track.Sent{Kind: kind, Pure: isPure(s), MayCommit: s.Commits}, instead...)
	r.setOwn(b, kind, after.settings(before, s.Local))
	return n, err
}
