package postgres

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// finish tells the client why the session has ended, as its last message, and ends pumpClient. The server's leg is
// closed by the session afterwards. It returns the reason for the log.
func (p *pumps) finish(err error) error {
	r := p.relay
	err = r.why(err)
	goesOn := r.goesOn() // before the client is told: it leaves then
	now := time.Now()
	_ = p.client.SetWriteDeadline(now.Add(p.limit())) // a dead connection fails to write
	if message := lastWord(err); message != nil && !p.tornDown && !r.inMessage() {
		_ = p.writeClient(message) // the client is gone or does not read: nobody is left to be told
	}
	r.mu.Lock()
	r.endLocked(errEnded) // nothing more goes to the server
	r.mu.Unlock()
	if goesOn {
		r.cancel()
	}
	_ = p.server.Close() // also wakes a pumpClient that is blocked writing to it
	_ = closeWrite(p.client)
	r.stop()
	_ = p.client.SetReadDeadline(now) // wakes pumpClient, which reads on for a moment if the client is busy
	return err
}

// inMessage reports whether the client has got a part of a message.
func (r *relay) inMessage() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down.rest > 0 && !r.down.drop
}

// why finds the reason: the proxy's own, or else what the floors say about a backend that was terminated.
func (r *relay) why(err error) error {
	r.mu.Lock()
	reason, silent, goodbye := r.reason, r.silent, r.goodbye
	r.mu.Unlock()
	bound := r.session.member != nil && len(r.session.member.Claims()) > 0
	var fatal *serverFatal
	isFatal := errors.As(err, &fatal)
	switch {
	case goodbye:
		return err // nobody is there to be told, nor refused
	case reason != nil:
		err = reason
	case errors.Is(err, errClientGone), silent && !isFatal:
		return err
	case !bound || isFatal && fatal.notice.Code != codeAdminShutdown:
		return err
	default:
		if refusal := r.session.member.Explain(r.ctx); refusal != nil {
			err = refusal
		}
	}
	var refusal *gate.Refusal
	if !errors.As(err, &refusal) || !slices.Contains(mayHaveCommitted, refusal.Reason) {
		return err
	}
	return r.gate.Refused(r.outcome(refusal))
}

// mayHaveCommitted are the reasons to end a session that can come while a commit is in flight.
var mayHaveCommitted = []gate.Reason{gate.StaleToken, gate.LeaseEnded, gate.NotReady}

// outcome makes the refusal of a fenced session say that a commit may have been in flight, if so.
func (r *relay) outcome(refusal *gate.Refusal) *gate.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.talk.MayCommit() {
		return refusal
	}
	return &gate.Refusal{
		Reason: gate.OutcomeUnknown, Claim: refusal.Claim, Floor: refusal.Floor, Err: refusal,
		Detail: refusal.Detail + " The statement in flight may have been committed before that, or not at all.",
		Hint:   "Read what the table holds, under a new lock, before you do the work again.",
	}
}

// lastWord is the client's last message, nil if there is none for it.
func lastWord(err error) []byte {
	var fatal *serverFatal
	if errors.As(err, &fatal) {
		return fatal.message
	}
	return farewell(err)
}

// goesOn reports whether a statement would go on without its client, although the proxy ends the session: ending a lease
// is meant to end its work. A stale session's backend is gone already, and what a client leaves behind itself runs on.
func (r *relay) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason != nil && !isStale(r.reason) && !r.silent && !r.talk.Idle()
}

// cancel stops what the backend is doing.
func (r *relay) cancel() {
	if key := r.session.backend.cancelKey; len(key) >= 8 {
		r.session.unfinished = key
		r.session.server.cancelLater(r.session.at, key, r.session.log)
	}
}

func isStale(err error) bool {
	var refusal *gate.Refusal
	return errors.As(err, &refusal) && refusal.Reason == gate.StaleToken
}

// linger lets the client read what was written last before the connection is closed: closing it with unread input
// would reset it, and the last message would be lost.
func linger(client net.Conn, limit time.Duration) {
	if closeWrite(client) == nil {
		forget(client, limit)
	}
}

// forget reads what the client still sends until it stops for a moment, and at most for the limit.
func forget(client net.Conn, limit time.Duration) {
	const pause = 100 * time.Millisecond
	var rest [4096]byte
	for end := time.Now().Add(limit); ; {
		next := time.Now().Add(pause)
		if next.After(end) || client.SetReadDeadline(next) != nil {
			return
		}
		if _, err := client.Read(rest[:]); err != nil {
			return
		}
	}
}

// closeWrite ends one direction of a connection.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}
