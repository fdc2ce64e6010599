package postgres

import (
	"errors"
	"fmt"
	"io"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// pumpClient carries the client's messages to the server until the client leaves or the session is over. It never
// closes the client; once the session is over it reads and forgets what still comes, so that the last message
// reaches a client who is busy sending.
func (r *relay) pumpClient() {
	err := r.carryToServer()
	var (
		refusal *gate.Refusal
		failed  *failure
		frame   *wire.FrameError
	)
	switch {
	case err == nil, errors.Is(err, errEnded):
	case errors.As(err, &refusal), errors.As(err, &failed), errors.As(err, &frame):
		r.end(err)
	default: // one of the two connections is broken
		r.clientLeft()
	}
	<-r.ctx.Done()
	if err != nil {
		forget(r.session.client, r.session.server.config.EndTimeout)
	}
}

func (r *relay) carryToServer() error {
	for {
		if !r.session.fromClient.Whole() {
			if err := r.toServer.Flush(); err != nil {
				return err
			}
		}
		typ, size, err := r.session.fromClient.Next()
		if err != nil {
			return r.clientStopped(err)
		}
		if err := r.carry(typ, size); err != nil {
			return err
		}
		if typ == 'X' {
			r.clientLeft()
			return nil
		}
	}
}

// clientStopped passes the end of the stream on: the server then finishes what it has been sent, as it would
// without a proxy.
func (r *relay) clientStopped(err error) error {
	var frame *wire.FrameError
	if errors.As(err, &frame) {
		return frame
	}
	select {
	case <-r.ctx.Done():
		return errEnded
	default:
	}
	r.clientLeft()
	return nil
}

// clientLeft lets the server know that nothing more comes.
func (r *relay) clientLeft() {
	r.mu.Lock()
	r.silent = true
	r.mu.Unlock()
	if r.toServer.Flush() == nil {
		_ = closeWrite(r.session.upstream) // fails only if the connection is gone, which fromServer sees
	}
}

// carry deals with one message whose header has been read.
func (r *relay) carry(typ byte, size int) error {
	access := r.access()
	if access == gate.Barred && !r.barred {
		r.statements.forgetHarmless()
	}
	r.barred = access == gate.Barred
	switch typ {
	case 'Q':
		return r.query(size)
	case 'P':
		return r.parse(size)
	case 'B':
		return r.bind(size)
	case 'E':
		return r.execute(size)
	case 'D':
		return r.describe(size)
	case 'F':
		if r.barred {
			return r.refuseAndSkip(track.Call, nil, ticketRequired())
		}
		return r.pass(typ, size, track.Sent{Kind: track.Call})
	case 'C':
		return r.closeName(size)
	case 'S':
		return r.pass(typ, size, track.Sent{Kind: track.Sync})
	case 'c', 'f':
		return r.pass(typ, size, track.Sent{Kind: track.CopyEnd})
	case 'd', 'H', 'X':
		return r.stream(typ, size)
	}
	return &wire.FrameError{Reason: fmt.Sprintf("invalid frontend message type %d", typ)}
}

// pass notes a message and forwards it as it is.
func (r *relay) pass(typ byte, size int, sent track.Sent) error {
	if err := r.send(sent); err != nil {
		return err
	}
	return r.stream(typ, size)
}

// stream forwards the message whose header has been read, however large it is.
func (r *relay) stream(typ byte, size int) error {
	if err := r.header(typ, size); err != nil {
		return err
	}
	for {
		piece, err := r.session.fromClient.Chunk()
		if err != nil || len(piece) == 0 {
			return unlessEOF(err)
		}
		if _, err := r.toServer.Write(piece); err != nil {
			return err
		}
	}
}

// unlessEOF tells a client that vanished inside a message from one that left.
func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *relay) header(typ byte, size int) error {
	_, err := r.toServer.Write(wire.AppendHeader(r.toServer.AvailableBuffer(), typ, size))
	return err
}

// replace forwards another body in place of the one that has been consumed.
func (r *relay) replace(typ byte, parts ...[]byte) error {
	_, err := r.toServer.Write(wire.AppendMessage(r.toServer.AvailableBuffer(), typ, parts...))
	return err
}

// The texts that the server sees in place of what is refused. It answers each with an error, which makes the error
// its own: an open transaction is aborted, the rest of a pipeline is skipped.
var (
	refusedText = []byte("lychgate refused a statement\x00")
	refusedBind = []byte{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0} // two formats for no parameters
	noTypes     = []byte{0, 0}
)

// refuse sends the server something to refuse in place of a message whose body has been consumed; name is that of
// a Parse. While the server skips everything anyway nothing is sent.
func (r *relay) refuse(kind track.Kind, name []byte, refusal *gate.Refusal) error {
	return r.refuseCounted(kind, name, r.gate.Refused(refusal))
}

// refuseCounted is refuse for a refusal that the gate has counted already.
func (r *relay) refuseCounted(kind track.Kind, name []byte, refusal *gate.Refusal) error {
	skipping := false
	instead := noticeOf(refusal, severityError).ErrorResponse()
	err := r.await(func() bool { return !r.talk.Full() }, func() {
		skipping = r.talk.Skipping()
		if !skipping {
			r.talk.Send(track.Sent{Kind: kind, Instead: instead})
		}
	})
	if err != nil || skipping {
		return err
	}
	switch kind {
	case track.Query, track.Call:
		return r.replace('Q', refusedText)
	case track.Parse:
		return r.replace('P', name, []byte{0}, refusedText, noTypes)
	default:
		return r.replace('B', refusedBind)
	}
}

// refuseAndSkip is refuse for a message whose body has not been consumed.
func (r *relay) refuseAndSkip(kind track.Kind, name []byte, refusal *gate.Refusal) error {
	if err := r.session.fromClient.Skip(); err != nil {
		return unlessEOF(err)
	}
	return r.refuse(kind, name, refusal)
}

func ticketRequired() *gate.Refusal {
	return &gate.Refusal{
		Reason: gate.TicketRequired, Detail: "This listener executes nothing without a ticket.",
		Hint: "Connect with the parameter fence.ticket, or SET fence.ticket first.",
	}
}

// notAllowed is a refusal of a statement's form.
func notAllowed(detail, hint string) *gate.Refusal {
	return &gate.Refusal{Reason: gate.NotAllowed, Detail: detail, Hint: hint}
}

func mentionRefused() *gate.Refusal {
	return notAllowed("The statement mentions fence.ticket in a form that would reach the server's log, and bind nothing.",
		"Send SET fence.ticket = '…' as a statement of its own.")
}

func prepareRefused() *gate.Refusal {
	return notAllowed("A prepared transaction would outlive its session, and with it the fence.", "Commit in one phase.")
}

// judge says whether a whole text may be forwarded as far as its form goes.
func (r *relay) judge(s sqltext.Statement) *gate.Refusal {
	switch {
	case s.Mentions && s.Kind == sqltext.Other:
		return mentionRefused()
	case s.Prepares && r.access() == gate.Fenced:
		return prepareRefused()
	case r.barred && s.Kind == sqltext.Other:
		return ticketRequired()
	}
	return nil
}

// isPure reports whether executing a statement changes nothing and sees nothing.
func isPure(s sqltext.Statement) bool {
	switch s.Kind {
	case sqltext.Empty, sqltext.Begin, sqltext.SetTicket, sqltext.ResetTicket, sqltext.ShowTicket:
		return true
	case sqltext.Other, sqltext.End:
	}
	return false
}
