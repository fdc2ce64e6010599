package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// state is where a session stands on its way to the relay. Each state has one method that does its work.
type state uint8

const (
	negotiating    state = iota // encryption, start-up message, tickets
	admitting                   // verify, decide, raise floors: no connection to the server yet
	connecting                  // dial the server and hand over the start-up message
	authenticating              // messages pass through until the server is ready, which the client is not told yet
	probing                     // ask the session itself who it is
	joining                     // bind
	relaying
	ended
)

func (s state) String() string {
	return [...]string{"negotiating", "admitting", "connecting", "authenticating", "probing", "joining", "relaying", "ended"}[s]
}

// session is one client's connection. One goroutine owns it; the relay adds a second.
type session struct {
	server    *Server
	log       *slog.Logger
	client    net.Conn
	raw       net.Conn // client without TLS
	address   string   // the client's own, which need not be that of its connection
	encrypted bool
	endPoint  []byte // channel binding of its TLS; nil: none
	evict     func() // ends it while it arrives; called by anybody, any number of times
	seat      *seat  // its slot; nil: it has none

	startup wire.Startup
	shown   gate.Shown
	plan    gate.Plan

	upstream   net.Conn
	at         upstream        // the host that it leads to
	tenure     context.Context // of that host
	unfollow   func() bool     // stops waiting for the end of the tenure; nil: not connected yet
	fromClient *wire.Reader
	fromServer *wire.Reader
	backend    backend
	login      *login        // while the proxy logs in for the client
	stripped   bool          // the server's offer of channel binding was left out, and the client has not answered yet
	heldBack   []byte        // the server's first ReadyForQuery
	member     *gate.Session // nil while the session cannot be bound
	cannotBind *gate.Refusal // why not
	unfinished []byte        // the cancel key, if the proxy ended the session while the backend was busy

	mu    sync.Mutex
	relay *relay // set when the session relays
	ended error  // why it was ended before that
}

// backend is what is known of the server's process behind the session.
type backend struct {
	cancelKey []byte // body of BackendKeyData: process id and key
	standby   bool   // as the server reported at start-up
	probed    fencestore.Session
}

// run takes the session through its states and blocks until it has ended. ctx done means drain.
func (s *session) run(ctx context.Context) {
	var err error
	stop := s.bound(ctx)
	for at := negotiating; at != ended; {
		if at == relaying {
			stop()
		}
		s.log.Debug("session", "state", at.String())
		at, err = s.step(ctx, at)
	}
	stop()
	s.close(err)
}

// bound limits the time up to the end of the start-up message, from where admit extends it up to the relay, and ends
// the session when ctx is done. The returned function lifts the limit.
func (s *session) bound(ctx context.Context) (stop func()) {
	raw := s.client
	s.raw = raw
	_ = raw.SetDeadline(time.Now().Add(s.server.config.HelloTimeout)) // a dead connection fails on read
	unwatch := context.AfterFunc(ctx, func() { s.interrupt(raw) })
	return sync.OnceFunc(func() {
		unwatch()
		_ = raw.SetDeadline(time.Time{})
		if s.upstream != nil {
			_ = s.upstream.SetDeadline(time.Time{})
		}
	})
}

// interrupt wakes a session that waits for its client or server before it relays.
func (s *session) interrupt(client net.Conn) {
	past := time.Unix(1, 0)
	_ = client.SetReadDeadline(past)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upstream != nil {
		_ = s.upstream.SetReadDeadline(past)
	}
}

// step does the work of one state and returns the next.
func (s *session) step(ctx context.Context, at state) (state, error) {
	work, next := s.work(at)
	if err := work(ctx); err != nil {
		if ctx.Err() != nil && at != relaying {
			err = shuttingDown()
		}
		return ended, cmp.Or(s.endedEarly(), err)
	}
	return next, nil
}

// endedEarly is why the session was ended before it relays; nil if it was not. The relay has its own reasons.
func (s *session) endedEarly() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay != nil {
		return nil
	}
	return s.ended
}

func (s *session) work(at state) (work func(context.Context) error, next state) {
	switch at {
	case negotiating:
		return s.negotiate, admitting
	case admitting:
		return s.admit, connecting
	case connecting:
		return s.connect, authenticating
	case authenticating:
		return s.authenticate, probing
	case probing:
		return s.probe, joining
	case joining:
		return s.join, relaying
	case relaying:
		return s.startRelay, ended
	case ended:
	}
	panic(fmt.Sprintf("postgres: no work in state %v", at))
}

// admit decides what the session may do, gives it its slot and raises the floors. A stale ticket is refused here,
// before the server hears of the client at all.
func (s *session) admit(ctx context.Context) error {
	_ = s.client.SetDeadline(time.Now().Add(s.server.config.StartupTimeout)) // a dead connection fails on read
	if err := ctx.Err(); err != nil {
		return err // an interrupt that came before was undone just now
	}
	if s.wantsConsole() {
		return s.serveConsole(ctx)
	}
	if err := s.checkStartup(); err != nil {
		return err
	}
	g := s.server.config.Gate
	plan, err := g.Plan(ctx, s.shown)
	if err != nil {
		return err
	}
	s.plan = plan
	s.shown = gate.Shown{} // secrets are not kept
	if err := s.checkReplication(plan.Access); err != nil {
		return err
	}
	if err := s.server.seat(ctx, s, plan.Access == gate.Fenced); err != nil {
		return err
	}
	if _, _, err := s.server.current(ctx); err != nil {
		return s.unreachable(err) // names each host; the store would know only that it has none
	}
	return g.Raise(ctx, plan.Claims)
}

// connect dials the server. The start-up message that it gets is the client's without what was the proxy's.
func (s *session) connect(ctx context.Context) error {
	conn, at, tenure, err := s.server.dial(ctx)
	if err != nil {
		return s.unreachable(err)
	}
	s.at = at
	_ = conn.SetDeadline(time.Now().Add(s.server.config.StartupTimeout)) // a dead connection fails on read
	s.mu.Lock()
	s.upstream = conn
	s.mu.Unlock()
	s.followTenure(tenure)
	if err := ctx.Err(); err != nil {
		return err // an interrupt that came before could not see the connection
	}
	s.fromClient, s.fromServer = wire.NewReader(s.client, bufferSize), wire.NewReader(conn, bufferSize)
	if s.plan.ReadOnly() {
		s.log.Debug(askedToRead)
		s.startup.Set("default_transaction_read_only", "on") // a parameter of its own wins over the same in options
	}
	if _, err = conn.Write(s.startup.Packet()); err != nil {
		return s.refusedByServer(true, err)
	}
	return nil
}

// unreachable tells the client what it can know of why there is no connection to the server, and the operator the rest.
func (s *session) unreachable(err error) error {
	f := fail(codeCannotConnect, "the database server cannot be reached")
	f.err = err
	var (
		insecure *tlsError
		nowhere  *noServerError
	)
	if errors.As(err, &nowhere) {
		s.log.Warn("no server", "cause", err.Error())
		return s.server.config.Gate.Refused(&gate.Refusal{
			Reason: gate.NotReady, Err: err, Detail: "None of the hosts is the server: " + nowhere.err.Error() + ".", Hint: "Retry once there is a primary.",
		})
	}
	if errors.As(err, &insecure) {
		f.notice.Message, f.notice.Detail = "the database server cannot be reached over TLS", insecure.detail+"."
		s.log.Warn("no TLS with the server", "cause", err.Error())
	}
	return f
}

// join binds the session to what it has shown, and only then lets the client know that it may speak.
func (s *session) join(ctx context.Context) error {
	if s.plan.Access == gate.Fenced {
		if s.cannotBind != nil {
			return s.server.config.Gate.Refused(s.cannotBind)
		}
		if err := s.member.Join(ctx, s.plan.Claims); err != nil {
			return s.explainJoin(err)
		}
	}
	if s.tenure.Err() != nil {
		return s.server.config.Gate.Refused(s.movedRefusal())
	}
	_, err := s.client.Write(s.heldBack)
	return err
}

func (s *session) startRelay(ctx context.Context) error {
	r := newRelay(s)
	s.mu.Lock()
	s.relay = r
	early := s.ended
	s.mu.Unlock()
	if early != nil {
		r.end(early)
	}
	if ctx.Err() != nil {
		r.drain()
	}
	return r.run()
}

// end is called by anybody to end the session for a reason that the client is told.
func (s *session) end(reason error) {
	s.mu.Lock()
	r := s.relay
	if r == nil && s.ended == nil {
		s.ended = reason
	}
	s.mu.Unlock()
	if r != nil {
		r.end(reason)
	}
}

// drain ends the session as soon as nothing is in flight. Before the relay, run's own context does it.
func (s *session) drain() {
	s.mu.Lock()
	r := s.relay
	s.mu.Unlock()
	if r != nil {
		r.drain()
	}
}

// cut ends the session whatever it does.
func (s *session) cut() { s.end(shuttingDown()) }

// writing reports whether the relay is in a write to the client, and which one.
func (s *session) writing() (which uint32, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return 0, false
	}
	which = s.relay.writing.Load()
	return which, which%2 == 1
}

// checkStale ends a session that has been overtaken without being able to see it.
func (s *session) checkStale(ctx context.Context) {
	if s.member == nil {
		return
	}
	if refusal := s.member.Stale(ctx); refusal != nil {
		s.end(refusal)
	}
}

// close tells the client why, ends both connections, and leaves the unbinding to the server, which owns it: the
// backend may need time to notice that it is alone.
func (s *session) close(err error) {
	if s.relay == nil {
		s.sayFarewell(err)
	}
	if s.unfollow != nil {
		s.unfollow()
	}
	if s.upstream != nil {
		s.upstream.Close()
	}
	s.client.Close()
	if err != nil && !errors.Is(err, errNoSession) {
		s.log.Debug("session ended", "cause", err.Error())
	}
	if s.member != nil {
		s.server.unbindLater(s.member, s.at, s.unfinished, s.log)
	}
}

// sayFarewell writes the FATAL of a session that did not get as far as its relay, and gives the client a moment to
// read it: a close with unread input would reset the connection and take the message with it.
func (s *session) sayFarewell(err error) {
	message := farewell(err)
	if message == nil {
		return
	}
	_ = s.client.SetDeadline(time.Now().Add(s.server.config.EndTimeout))
	if _, err := s.client.Write(message); err != nil {
		return
	}
	linger(s.client, s.server.config.EndTimeout)
}
