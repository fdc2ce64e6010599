package postgres

import (
	"errors"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// showTicket executes a SET or RESET of fence.ticket: it binds before the statement goes to the server, at a moment
// at which nothing is outstanding. forward sends the statement without its secret.
func (r *relay) showTicket(s sqltext.Statement, sent track.Sent, forward func() error) error {
	claims, err := r.verify(s)
	if err == nil {
		err = r.quiesce()
	}
	if err == nil && len(claims) > 0 {
		err = r.joinNow(claims)
	}
	var refusal *gate.Refusal
	switch {
	case errors.As(err, &refusal):
		return r.refuseCounted(sent.Kind, nil, refusal)
	case errors.Is(err, errSkipping):
		return nil // an earlier message of the batch has failed: the server would not have looked at this one
	case err != nil:
		return err
	}
	var (
		settings []string
		asked    bool
	)
	err = r.await(func() bool { return !r.talk.Full() }, func() {
		r.talk.Send(sent)
		before := r.reading()
		if s.Kind == sqltext.ResetTicket {
			r.fences.reset()
		} else {
			r.fences.add(claims, s.Local)
		}
		after := r.reading()
		settings, asked = after.settings(before, s.Local), after != before && (after.now || after.later)
	})
	if err != nil {
		return err
	}
	if err := forward(); err != nil {
		return err
	}
	if asked {
		r.session.log.Debug(askedToRead)
	}
	return r.setOwn(sent.Kind, settings)
}

// errSkipping means that the server ignores everything up to the next Sync.
var errSkipping = errors.New("the server skips to the next Sync")

// verify asks for nothing but the ticket itself, so that a bad one is refused wherever it stands.
func (r *relay) verify(s sqltext.Statement) ([]fencestore.Claim, error) {
	if s.Kind != sqltext.SetTicket {
		return nil, nil
	}
	plan, err := r.gate.Plan(r.ctx, gate.Shown{Tickets: s.Tickets()})
	if err != nil {
		return nil, err
	}
	return plan.Claims, nil
}

// quiesce waits until no reply is outstanding. Where a batch has begun it asks the server to hand over the replies
// that it holds back; a Flush changes nothing else, where a Sync would commit half of the batch. Where that moment
// cannot be had, the session ends: during a COPY the server would not take what stands in for a refused statement.
func (r *relay) quiesce() error {
	flushed := false
	for {
		var quiet, skipping, hopeless, flush bool
		err := r.await(func() bool {
			quiet, skipping = r.talk.Quiet(), r.talk.Skipping()
			hopeless = r.talk.Lost() || r.talk.Copying()
			flush = !flushed && r.talk.NeedsFlush()
			return quiet || hopeless || flush
		}, func() {})
		switch {
		case err != nil:
			return err
		case skipping && quiet:
			return errSkipping
		case quiet:
			return nil
		case hopeless:
			r.end(r.gate.Refused(blind()))
			return errEnded
		}
		flushed = true
		if err := r.replace('H'); err != nil {
			return err
		}
	}
}

func blind() *gate.Refusal {
	return notAllowed("A COPY runs, or the server has answered in a way that the proxy does not understand: "+
		"nothing can be bound in the middle of that.", "Connect again, and show the ticket between transactions.")
}

// joinNow binds the session, which is quiet and stays so: only this goroutine sends to the server.
func (r *relay) joinNow(claims []fencestore.Claim) error {
	bindable := false
	if err := r.await(func() bool { return true }, func() { bindable = r.talk.Bindable() }); err != nil {
		return err
	}
	switch {
	case r.session.cannotBind != nil:
		return r.gate.Refused(r.session.cannotBind)
	case !bindable:
		return r.gate.Refused(notAllowed("A ticket can be shown between transactions, or as the first statement of one: "+
			"an older snapshot would read what the new holder must not see.", "Set it first in the next transaction."))
	}
	r.drops.Wait() // what was left is not joined again before it is gone
	return r.session.member.Join(r.session.server.hard, claims)
}
