package postgres

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// pumps is the driver that every kind of connection can have: two goroutines a session. Each is the only one that reads
// from its side and writes to the other.
type pumps struct {
	relay          *relay
	client, server net.Conn
	changed        chan struct{} // the client's messages may go on; holds one signal
	ended          atomic.Bool   // the deadlines of the end are set
	tornDown       bool          // a message to the client was cut; toClient's own
}

// errClientGone ends a session whose client can no longer be written to.
var errClientGone = errors.New("the client is gone")

// pump carries a session from where it stands to its end.
func (r *relay) pump(from underway) error {
	p := &pumps{relay: r, client: r.session.client, server: r.session.upstream, changed: make(chan struct{}, 1)}
	r.drive(p)
	p.look()
	clientDone := make(chan struct{})
	go func() {
		defer close(clientDone)
		p.pumpClient(from.toServer)
	}()
	err := p.pumpServer(from.toClient, from.cause)
	err = p.finish(err)
	<-clientDone
	return err
}

// look interrupts the goroutine that reads from the server where the session is to end. A stale session's backend is
// gone: what it had sent before, the answer to a COMMIT perhaps, is still worth passing on, so reading goes on to the
// end of the stream for a while.
func (p *pumps) look() {
	if p.relay.isOver() && p.ended.CompareAndSwap(false, true) {
		now := time.Now()
		until := now
		if isStale(p.relay.ending()) {
			until = now.Add(p.limit() / 2)
		}
		_ = p.server.SetReadDeadline(until) // a connection that is closed needs no waking
		_ = p.client.SetWriteDeadline(now.Add(p.limit()))
	}
	p.signal()
}

// signal lets pumpClient try again.
func (p *pumps) signal() {
	select {
	case p.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

func (p *pumps) limit() time.Duration { return p.relay.session.server.config.EndTimeout }

// input is what one goroutine reads into.
type input struct {
	buffer []byte
	filled int
}

func newInput(arrived []byte) *input {
	in := &input{buffer: make([]byte, max(bufferSize, len(arrived)))}
	in.filled = copy(in.buffer, arrived)
	return in
}

func (in *input) bytes() []byte { return in.buffer[:in.filled] }

// consume forgets the first n bytes.
func (in *input) consume(n int) { in.filled = copy(in.buffer, in.buffer[n:in.filled]) }

func (in *input) read(from io.Reader) error {
	n, err := from.Read(in.buffer[in.filled:])
	in.filled += n
	if n > 0 {
		return nil
	}
	return err
}

// pumpClient carries the client's messages to the server until the client leaves or the session is over. It never
// closes the client; once the session is over it reads and forgets what still comes, so that the last message
// reaches a client who is busy sending.
func (p *pumps) pumpClient(from lane) {
	err := p.carryToServer(from)
	var (
		refusal *gate.Refusal
		failed  *failure
		frame   *wire.FrameError
	)
	switch {
	case err == nil:
	case errors.Is(err, errEnded):
		p.look()
	case errors.As(err, &refusal), errors.As(err, &failed), errors.As(err, &frame):
		p.relay.end(err)
	default: // one of the two connections is broken
		p.clientLeft()
	}
	<-p.relay.ctx.Done()
	if err != nil {
		forget(p.client, p.limit())
	}
}

func (p *pumps) carryToServer(from lane) error {
	in, out := newInput(from.in), from.out
	for {
		if len(out) > 0 {
			if _, err := p.server.Write(out); err != nil {
				return err
			}
		}
		b, n, err := p.relay.fromClient(in.bytes())
		out = b.result()
		if len(out) > 0 {
			if _, werr := p.server.Write(out); werr != nil && err == nil {
				err = werr
			}
			out = nil
		}
		in.consume(b.at)
		if err != nil {
			return err
		}
		switch n {
		case left:
			p.clientLeft()
			return nil
		case wait:
			select {
			case <-p.changed:
			case <-p.relay.ctx.Done():
				return errEnded
			}
		case more, done:
			if err := in.read(p.client); err != nil {
				return p.clientStopped()
			}
		}
	}
}

// clientStopped passes the end of the stream on: the server then finishes what it has been sent, as it would
// without a proxy.
func (p *pumps) clientStopped() error {
	select {
	case <-p.relay.ctx.Done():
		return errEnded
	default:
	}
	p.clientLeft()
	return nil
}

// clientLeft lets the server know that nothing more comes.
func (p *pumps) clientLeft() {
	p.relay.mu.Lock()
	p.relay.silent = true
	p.relay.mu.Unlock()
	_ = closeWrite(p.server) // fails only if the connection is gone, which the other goroutine sees
}

// pumpServer carries the server's messages to the client until the server has nothing more to say or the proxy ends
// the session. It returns why.
func (p *pumps) pumpServer(from lane, cause error) error {
	if err := p.writeClient(from.out); err != nil {
		return err
	}
	if cause != nil {
		return cause
	}
	in := newInput(from.in)
	for {
		b, err := p.relay.fromServer(in.bytes())
		if werr := p.writeClient(b.result()); werr != nil {
			return werr
		}
		in.consume(b.at)
		if err != nil {
			return err
		}
		p.signal()
		if err := p.patiently(func() error { return in.read(p.server) }); err != nil {
			return err
		}
	}
}

// patiently repeats a read that was interrupted without a reason to stop. The deadline is lifted before the reason
// is looked for, so that none that is given in between is missed.
func (p *pumps) patiently(read func() error) error {
	for {
		err := read()
		if !errors.Is(err, os.ErrDeadlineExceeded) || p.relay.isOver() {
			return err
		}
		_ = p.server.SetReadDeadline(time.Time{}) // a connection that is closed fails on read
		if p.relay.isOver() {
			return err
		}
	}
}

// writeClient writes to the client, and lets others see that this lasts.
func (p *pumps) writeClient(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	p.relay.writing.Add(1)
	defer p.relay.writing.Add(1)
	if _, err := p.client.Write(out); err != nil {
		p.tornDown = true // it may have been cut
		return errClientGone
	}
	return nil
}
