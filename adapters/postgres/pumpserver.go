package postgres

import (
	"bytes"
	"errors"
	"os"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// errClientGone ends a session whose client can no longer be written to.
var errClientGone = errors.New("the client is gone")

// serverFatal is the server's own last word.
type serverFatal struct {
	notice  wire.Notice
	message []byte // whole, as it came
}

func (e *serverFatal) Error() string { return "server: " + e.notice.Code + " " + e.notice.Message }

// pumpServer carries the server's messages to the client until the server has nothing more to say or the proxy ends
// the session. It returns why.
func (r *relay) pumpServer() error {
	for {
		if !r.session.fromServer.Whole() {
			if err := r.flushClient(); err != nil {
				return err
			}
		}
		typ, size, err := r.nextFromServer()
		if err != nil {
			return err
		}
		if err := r.deliver(typ, size); err != nil {
			return err
		}
		if r.endsHere() {
			return r.flushClient()
		}
	}
}

// nextFromServer waits for a message; one that fits into the buffer is there as a whole afterwards, so that a server
// that vanishes in the middle leaves the client at a boundary.
func (r *relay) nextFromServer() (typ byte, size int, err error) {
	in := r.session.fromServer
	err = r.patiently(func() error {
		typ, size, err = in.Next()
		return err
	})
	if err == nil && in.Fits() {
		err = r.patiently(func() error {
			_, err := in.Peek(size)
			return err
		})
	}
	return typ, size, err
}

// patiently repeats a read that was interrupted without a reason to stop. The deadline is lifted before the reason
// is looked for, so that none that is given in between is missed.
func (r *relay) patiently(read func() error) error {
	for {
		err := read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if r.isOver() {
			return err
		}
		_ = r.session.upstream.SetReadDeadline(time.Time{}) // a connection that is closed fails on read
		if r.isOver() {
			return err
		}
	}
}

// isOver answers a wake-up: it reports whether there is a reason to stop. A drain finds its moment here too.
func (r *relay) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == nil && r.draining && r.talk.Idle() {
		r.reason = shuttingDown()
	}
	return r.reason != nil
}

// endsHere reports, at a message boundary, whether the session is to end now rather than go on to what else the
// server has sent.
func (r *relay) endsHere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason != nil && !isStale(r.reason)
}

// flushClient writes to the client what has been gathered. A write that fails may have been cut.
func (r *relay) flushClient() error {
	if r.toClient.Buffered() == 0 {
		return nil
	}
	return r.written(r.toClient.Flush())
}

// clientWriter is what toClient writes to: it lets others see that a write lasts.
type clientWriter struct{ relay *relay }

func (w clientWriter) Write(p []byte) (int, error) {
	w.relay.writing.Add(1)
	defer w.relay.writing.Add(1)
	return w.relay.session.client.Write(p)
}

func (r *relay) written(err error) error {
	if err != nil {
		r.tornDown = true
		return errClientGone
	}
	return nil
}

// deliver deals with one message whose header has been read.
func (r *relay) deliver(typ byte, size int) error {
	switch typ {
	case 'D', 'd': // rows and COPY data change nothing
		return r.forward(typ, size)
	case 'E':
		return r.deliverError(size)
	case 'S':
		return r.deliverParameter(size)
	}
	head, err := r.session.fromServer.Peek(min(size, 64))
	if err != nil {
		return err
	}
	effect := r.receive(typ, head)
	if effect.Idle {
		r.isOver() // a drain finds its moment here
	}
	if effect.Hidden {
		return r.session.fromServer.Skip()
	}
	return r.forward(typ, size)
}

// receive lets the conversation follow, and fromClient see what changed.
func (r *relay) receive(typ byte, head []byte) track.Effect {
	var (
		tag    string
		status byte
	)
	switch typ {
	case 'C':
		tag = endTag(head)
	case 'Z':
		if len(head) == 1 {
			status = head[0]
		}
	}
	r.mu.Lock()
	effect := r.talk.Receive(typ, tag, status)
	r.settle(effect)
	r.mu.Unlock()
	r.signal()
	return effect
}

// endTag names the command tags that the conversation has to tell apart, without allocating.
func endTag(head []byte) string {
	for _, tag := range []string{"COMMIT", "ROLLBACK"} {
		if len(head) == len(tag)+1 && string(head[:len(tag)]) == tag {
			return tag
		}
	}
	return ""
}

// forward writes a message to the client.
func (r *relay) forward(typ byte, size int) error {
	in := r.session.fromServer
	if in.Fits() {
		body, err := in.Body()
		if err != nil {
			return err
		}
		if _, err := r.toClient.Write(wire.AppendHeader(r.toClient.AvailableBuffer(), typ, size)); err != nil {
			return r.written(err)
		}
		_, err = r.toClient.Write(body)
		return r.written(err)
	}
	if _, err := r.toClient.Write(wire.AppendHeader(r.toClient.AvailableBuffer(), typ, size)); err != nil {
		return r.written(err)
	}
	for {
		piece, err := in.Chunk()
		if err != nil {
			r.tornDown = true
			return err
		}
		if len(piece) == 0 {
			return nil
		}
		if _, err := r.toClient.Write(piece); err != nil {
			return r.written(err)
		}
	}
}

// noticeHead is how much of an error is looked at. Severity and code come first.
const noticeHead = 1024

// deliverError passes an error on, or what stands in its place. A fatal one ends the session: what the client is
// told then depends on why.
func (r *relay) deliverError(size int) error {
	head, err := r.session.fromServer.Peek(noticeHead)
	if err != nil {
		return err
	}
	notice := wire.ParseNotice(head)
	if notice.Severity != severityError {
		return r.takeFatal(notice, size)
	}
	effect := r.receive('E', nil)
	if effect.Hidden {
		return r.session.fromServer.Skip()
	}
	if effect.Instead == nil {
		return r.forward('E', size)
	}
	if err := r.session.fromServer.Skip(); err != nil {
		return err
	}
	_, err = r.toClient.Write(effect.Instead)
	return r.written(err)
}

// takeFatal keeps the server's last word.
func (r *relay) takeFatal(notice wire.Notice, size int) error {
	fatal := &serverFatal{notice: notice}
	if r.session.fromServer.Fits() {
		body, err := r.session.fromServer.Body()
		if err != nil {
			return err
		}
		fatal.message = wire.AppendMessage(make([]byte, 0, size+5), 'E', body)
	} else {
		fatal.message = notice.ErrorResponse()
	}
	return fatal
}

// deliverParameter watches for a promotion or its opposite: a session on a standby survives it and would go on
// unregistered, so whatever changes there ends the session.
func (r *relay) deliverParameter(size int) error {
	head, err := r.session.fromServer.Peek(64)
	if err != nil {
		return err
	}
	before := r.session.backend.standby
	r.session.noteParameter(bytes.Clone(head))
	if err := r.forward('S', size); err != nil {
		return err
	}
	if r.session.backend.standby != before && r.gate.Policy() != gate.Allow {
		r.end(r.gate.Refused(notAllowed("The server has become a primary or a standby.", "Connect again.")))
	}
	return nil
}

// finish tells the client why the session has ended, as its last message, and ends fromClient. The server's leg is
// closed by the session afterwards. It returns the reason for the log.
func (r *relay) finish(err error) error {
	err = r.why(err)
	goesOn := r.goesOn() // before the client is told: it leaves then
	now := time.Now()
	_ = r.session.client.SetWriteDeadline(now.Add(r.session.server.config.EndTimeout)) // a dead connection fails to write
	if message := r.lastWord(err); message != nil && !r.tornDown {
		if _, werr := r.toClient.Write(message); werr == nil {
			_ = r.toClient.Flush() // the client is gone or does not read: nobody is left to be told
		}
	} else if !r.tornDown {
		_ = r.toClient.Flush()
	}
	r.mu.Lock()
	if r.reason == nil {
		r.reason = errEnded // nothing more goes to the server
	}
	r.mu.Unlock()
	if goesOn {
		r.cancel()
	}
	_ = r.session.upstream.Close() // also wakes a fromClient that is blocked writing to it
	_ = closeWrite(r.session.client)
	r.stop()
	_ = r.session.client.SetReadDeadline(now) // wakes fromClient, which reads on for a moment if the client is busy
	return err
}

// why finds the reason: the proxy's own, or else what the floors say about a backend that was terminated.
func (r *relay) why(err error) error {
	r.mu.Lock()
	reason, silent := r.reason, r.silent
	r.mu.Unlock()
	bound := r.session.member != nil && len(r.session.member.Claims()) > 0
	var fatal *serverFatal
	isFatal := errors.As(err, &fatal)
	switch {
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
	if !errors.As(err, &refusal) || refusal.Reason != gate.StaleToken && refusal.Reason != gate.LeaseEnded {
		return err
	}
	return r.gate.Refused(r.outcome(refusal))
}

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
func (r *relay) lastWord(err error) []byte {
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
		r.session.server.cancelLater(key, r.session.log)
	}
}

func isStale(err error) bool {
	var refusal *gate.Refusal
	return errors.As(err, &refusal) && refusal.Reason == gate.StaleToken
}
