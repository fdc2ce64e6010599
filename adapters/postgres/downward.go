package postgres

import (
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// serverFatal is the server's own last word.
type serverFatal struct {
	notice  wire.Notice
	message []byte // whole, as it came
}

func (e *serverFatal) Error() string { return "server: " + e.notice.Code + " " + e.notice.Message }

// fromServer deals with what has arrived from the server and decides what goes to the client. What it does not deal
// with it wants to see again, together with what arrives then. A message that is looked at whole goes as a whole, so
// that a server that vanishes leaves the client at a boundary. An error ends the session; what was let through before
// still goes.
func (r *relay) fromServer(in []byte) (b burst, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.in = in
	for more := true; more && err == nil; {
		more, err = r.fromServerOne(&b)
	}
	return b, err
}

// fromServerOne deals with one message, or with a piece of one.
func (r *relay) fromServerOne(b *burst) (more bool, err error) {
	if r.down.rest > 0 {
		r.down.stream(b)
		return r.down.rest == 0, nil
	}
	if r.over() && !isStale(r.reason) {
		return false, errEnded // at a boundary, now: what else the server has sent is not waited for
	}
	m, ok, err := firstMessage(b.left())
	if !ok || err != nil {
		return false, err
	}
	return true, r.deliver(b, m)
}

// deliver deals with one message that is to be looked at.
func (r *relay) deliver(b *burst, m message) error {
	switch m.typ {
	case 'D', 'd': // rows and COPY data change nothing
		r.down.pass(b, m)
		return nil
	case 'E':
		return r.deliverError(b, m)
	case 'S':
		r.deliverParameter(b, m)
		return nil
	}
	effect := r.receive(m)
	if effect.Hidden {
		r.down.skip(b, m)
	} else {
		r.down.pass(b, m)
	}
	if effect.Idle {
		r.over() // a drain finds its moment here
	}
	return nil
}

// receive lets the conversation follow.
func (r *relay) receive(m message) track.Effect {
	var (
		tag    string
		status byte
	)
	switch m.typ {
	case 'C':
		tag = endTag(m)
	case 'Z':
		if m.size == 1 {
			status = m.body[0]
		}
	}
	effect := r.talk.Receive(m.typ, tag, status)
	if effect.Idle || effect.Outcome != track.None {
		r.settle(effect)
	}
	return effect
}

// endTag names the command tags that the conversation has to tell apart, without allocating.
func endTag(m message) string {
	switch string(m.body) {
	case "COMMIT\x00":
		return "COMMIT"
	case "ROLLBACK\x00":
		return "ROLLBACK"
	}
	return ""
}

// noticeHead is how much of an error is looked at. Severity and code come first.
const noticeHead = 1024

// deliverError passes an error on, or what stands in its place. A fatal one ends the session: what the client is
// told then depends on why.
func (r *relay) deliverError(b *burst, m message) error {
	notice := wire.ParseNotice(m.body[:min(len(m.body), noticeHead)])
	if notice.Severity != severityError {
		fatal := &serverFatal{notice: notice, message: notice.ErrorResponse()}
		if m.whole() {
			fatal.message = wire.AppendMessage(nil, 'E', m.body)
		}
		r.down.skip(b, m)
		return fatal
	}
	effect := r.receive(message{typ: 'E'})
	switch {
	case effect.Hidden:
		r.down.skip(b, m)
	case effect.Instead != nil:
		r.down.skip(b, m)
		b.put(effect.Instead...)
	default:
		r.down.pass(b, m)
	}
	return nil
}

// deliverParameter watches for a promotion or its opposite: a session on a standby survives it and would go on
// unregistered, so whatever changes there ends the session.
func (r *relay) deliverParameter(b *burst, m message) {
	before := r.session.backend.standby
	r.session.noteParameter(m.body[:min(len(m.body), 64)])
	r.down.pass(b, m)
	if r.session.backend.standby != before && r.without != gate.Open {
		if u := r.session.server.config.Upstreams; u != nil {
			u.Doubt()
		}
		r.endLocked(r.gate.Refused(notAllowed("The server has become a primary or a standby.", "Connect again.")))
	}
}
