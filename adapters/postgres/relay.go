package postgres

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// relay carries the messages of a session that is set up. Two goroutines do it, and each is the only one that
// writes to its side: fromClient writes to the server, fromServer to the client. What the proxy itself has to say
// goes through the server: a refused statement is replaced by one that the server refuses, and the server's error
// by the proxy's words. So the order of replies, the state of the transaction and the fate of a pipeline are the
// server's own, always.
type relay struct {
	session    *session
	gate       *gate.Gate
	toServer   *bufio.Writer
	toClient   *bufio.Writer
	statements statements // fromClient's own
	barred     bool       // fromClient's own: the session could do nothing when the last message came

	ctx      context.Context // done when the session is over: stops what fromClient waits for
	stop     context.CancelFunc
	changed  chan struct{} // something that fromClient waits for may be so now; holds one signal
	drops    sync.WaitGroup
	writing  atomic.Uint32 // odd while fromServer writes to the client
	tornDown bool          // a message to the client was cut; fromServer's own

	mu       sync.Mutex
	talk     *track.Conversation
	fences   fences
	reason   error // why the session is ended by the proxy; nil while it goes on
	draining bool
	silent   bool // the client has ended the session itself
}

// errEnded tells fromClient that the session is over.
var errEnded = errors.New("the session has ended")

func newRelay(s *session) *relay {
	r := &relay{
		session: s, gate: s.server.config.Gate,
		toServer: bufio.NewWriterSize(s.upstream, bufferSize),
		changed:  make(chan struct{}, 1),
		talk:     track.New(), fences: fences{base: s.plan.Claims},
	}
	r.ctx, r.stop = context.WithCancel(s.server.hard)
	r.toClient = bufio.NewWriterSize(clientWriter{r}, bufferSize)
	return r
}

// run blocks until the session has ended and both goroutines are done.
func (r *relay) run() error {
	defer r.stop()
	clientDone := make(chan struct{})
	go func() {
		defer close(clientDone)
		r.pumpClient()
	}()
	err := r.pumpServer()
	err = r.finish(err)
	<-clientDone
	r.drops.Wait()
	return err
}

// end is called by anybody, any number of times; the first reason counts. It signals and returns.
func (r *relay) end(reason error) {
	r.mu.Lock()
	first := r.reason == nil
	if first {
		r.reason = reason
	}
	r.mu.Unlock()
	if first {
		r.wake(reason)
	}
}

// wake interrupts fromServer wherever it blocks. A stale session's backend is gone: what it had sent before, the
// answer to a COMMIT perhaps, is still worth passing on, so reading goes on to the end of the stream for a while.
func (r *relay) wake(reason error) {
	now := time.Now()
	until := now
	if isStale(reason) {
		until = now.Add(r.session.server.config.EndTimeout / 2)
	}
	_ = r.session.upstream.SetReadDeadline(until) // a connection that is closed needs no waking
	_ = r.session.client.SetWriteDeadline(now.Add(r.session.server.config.EndTimeout))
	r.signal()
}

// drain ends the session at the first moment at which nothing is in flight, which may be now.
func (r *relay) drain() {
	r.mu.Lock()
	r.draining = true
	idle := r.talk.Idle()
	r.mu.Unlock()
	if idle {
		_ = r.session.upstream.SetReadDeadline(time.Now()) // fromServer looks again, under the lock
	}
}

// signal lets fromClient look again.
func (r *relay) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// send notes a message that goes to the server next, waiting while too many replies are outstanding. After the end
// nothing more goes: it returns errEnded.
func (r *relay) send(sent track.Sent) error {
	return r.await(func() bool { return !r.talk.Full() }, func() { r.talk.Send(sent) })
}

// await blocks until ready says so, then calls then under the same lock.
func (r *relay) await(ready func() bool, then func()) error {
	for {
		r.mu.Lock()
		over := r.reason != nil
		ok := !over && ready()
		if ok {
			then()
		}
		r.mu.Unlock()
		switch {
		case over:
			return errEnded
		case ok:
			return nil
		}
		if err := r.toServer.Flush(); err != nil {
			return err
		}
		select {
		case <-r.changed:
		case <-r.ctx.Done():
			return errEnded
		}
	}
}

// access is what the session may do now.
func (r *relay) access() gate.Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fences.any() {
		return gate.Fenced
	}
	return r.gate.Policy().Without()
}

// settle draws the consequences of a transaction's end: bindings that are no longer wanted are left as soon as
// nothing is in flight that they may have carried. r.mu is held.
func (r *relay) settle(e track.Effect) {
	if e.Outcome != track.None {
		r.fences.settle(e.Outcome)
	}
	if !e.Idle {
		return
	}
	if unwanted := r.fences.takeUnwanted(); len(unwanted) > 0 {
		r.drops.Go(func() { r.leave(unwanted) })
	}
}

// leave is not cut short by the session's end, nor is a join: a question to the store that is broken off costs a side
// connection, and clients could use them up. The gate bounds it.
func (r *relay) leave(claims []fencestore.Claim) {
	if err := r.session.member.Leave(r.session.server.hard, claims); err != nil {
		r.session.log.Warn("binding kept: it ends with the session", "cause", err.Error())
	}
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
