package postgres

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// relay decides about the messages of a session that is set up. It does no I/O: a driver hands it what has arrived
// from one side (fromClient, fromServer) and writes what it lets through to the other. What the proxy itself has to say
// goes through the server: a refused statement is replaced by one that the server refuses, and the server's error
// by the proxy's words. So the order of replies, the state of the transaction and the fate of a pipeline are the
// server's own, always.
type relay struct {
	session *session
	gate    *gate.Gate
	without gate.Access // what the session may do with no ticket

	ctx     context.Context // done when the session is over
	stop    context.CancelFunc
	jobs    sync.WaitGroup // questions to the store, and tickets that are verified
	writing atomic.Uint32  // odd while a write to the client lasts

	mu       sync.Mutex
	driver   driver // nil: none has begun
	up       upward
	down     body // a message to the client that streams
	talk     *track.Conversation
	fences   fences
	leaving  int   // bindings that are being left
	reason   error // why the session is ended by the proxy; nil while it goes on
	draining bool
	silent   bool // nothing more comes from the client
	goodbye  bool // it has ended the session itself, and reads no more
}

// driver moves the bytes of a session. There are two: an event loop for many sessions whose connections are bare
// sockets, and two goroutines for one session, which also bring every session to its end.
type driver interface {
	// look lets the driver look again at what may have changed: whether the session is to end, and whether the client's
	// messages may go on. It is called by anybody, and returns at once.
	look()
}

// errEnded tells a driver that the session is over: why stands in the relay.
var errEnded = errors.New("the session has ended")

func newRelay(s *session) *relay {
	r := &relay{
		session: s, gate: s.server.config.Gate, without: s.plan.Without,
		talk: track.New(), fences: fences{base: s.plan.Claims},
	}
	r.ctx, r.stop = context.WithCancel(s.server.hard)
	return r
}

// run blocks until the session has ended.
func (r *relay) run() error {
	defer r.jobs.Wait()
	defer r.stop()
	at := underway{
		toServer: lane{in: bytes.Clone(r.session.fromClient.Buffered())},
		toClient: lane{in: bytes.Clone(r.session.fromServer.Buffered())},
	}
	r.session.fromClient, r.session.fromServer = nil, nil
	return r.pump(r.ride(at))
}

// underway is what is under way in both directions when one driver takes over from another.
type underway struct {
	toServer, toClient lane
	cause              error // why the server's part has ended, if it has
}

// lane is what is under way in one direction.
type lane struct {
	in  []byte // has arrived, and is not dealt with
	out []byte // is to be written
}

// drive sets the driver, which then has to look for itself at what happened before.
func (r *relay) drive(d driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.driver = d
}

// end is called by anybody, any number of times; the first reason counts. It signals and returns.
func (r *relay) end(reason error) {
	r.mu.Lock()
	r.endLocked(reason)
	r.mu.Unlock()
	r.look()
}

func (r *relay) endLocked(reason error) {
	if r.reason == nil {
		r.reason = reason
	}
}

// drain ends the session at the first moment at which nothing is in flight, which may be now.
func (r *relay) drain() {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.look()
}

func (r *relay) look() {
	r.mu.Lock()
	d := r.driver
	r.mu.Unlock()
	if d != nil {
		d.look()
	}
}

// isOver reports whether there is a reason to stop. A drain finds its moment here too.
func (r *relay) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over()
}

func (r *relay) over() bool {
	if r.reason == nil && r.draining && (r.talk.Idle() || r.talk.Streams() && r.down.rest == 0) {
		r.reason = shuttingDown()
	}
	return r.reason != nil
}

// ending is why the session is to end, nil while it goes on.
func (r *relay) ending() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// access is what the session may do now.
func (r *relay) access() gate.Access {
	if r.fences.any() {
		return gate.Fenced
	}
	return r.without
}

// job does something that takes time, and lets the driver look again. done is called under the lock. It is not cut
// short by the session's end: a question to the store that is broken off costs a side connection, and clients could
// use them up. The gate bounds it.
func (r *relay) job(work func(), done func()) {
	r.jobs.Go(func() {
		work()
		r.mu.Lock()
		done()
		r.mu.Unlock()
		r.look()
	})
}

// settle draws the consequences of a transaction's end: bindings that are no longer wanted are left as soon as
// nothing is in flight that they may have carried.
func (r *relay) settle(e track.Effect) {
	if e.Outcome != track.None {
		r.fences.settle(e.Outcome)
	}
	if !e.Idle {
		return
	}
	if unwanted := r.fences.takeUnwanted(); len(unwanted) > 0 {
		r.leaving++
		r.job(func() { r.leave(unwanted) }, func() { r.leaving-- })
	}
}

func (r *relay) leave(claims []fencestore.Claim) {
	if err := r.session.member.Leave(r.session.server.hard, claims); err != nil {
		r.session.log.Warn("binding kept: it ends with the session", "cause", err.Error())
	}
}
