package postgres

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// A listener's clients are bounded at each stage of their way, so that none of them can keep out a successor:
//
//   - arriving: connected, up to where the tickets of the start-up message are verified. At most MaxConnections, and
//     where one more comes the oldest has to go. So a client that says nothing keeps out nobody: whoever introduces
//     itself at once is through before as many others have come.
//   - with a slot: at most MaxConnections, and as many as Limits has room for their user, their database and in total. Those that
//     have shown no valid ticket are strangers until the server has authenticated them, and may hold half of each of these; more are
//     refused with 53300.
//   - ended, but not unbound: at most maxUnbinding.

// maxUnbinding bounds the ended sessions whose backends are waited for. Each asks the store about once a second, over
// the few side connections that takeovers need too, and clients that vanish in the middle of a statement could make
// them any number. What is over the bound is left to the next takeover or sweep, which finds the backend gone.
const maxUnbinding = 128

// Places is told who gets a slot. Its methods return at once and are safe for concurrent use.
type Places interface {
	Seated(delta int) // connections with a slot changed by delta
	Full(limit Limit) // one was refused
}

type nobody struct{}

func (nobody) Seated(int) {}
func (nobody) Full(Limit) {}

// admitConn lets a client arrive.
func (s *Server) admitConn(ctx context.Context, conn net.Conn, sessions *sync.WaitGroup) {
	setKeepAlive(conn)
	ctx, cancel := context.WithCancel(ctx)
	address := conn.RemoteAddr().String()
	one := &session{server: s, client: conn, address: address, log: s.log.With("client", address)}
	one.evict = func() {
		conn.Close() // first: it is told nothing
		cancel()
	}
	s.arrive(one)
	sessions.Go(func() {
		defer cancel()
		defer s.forget(one)
		one.run(ctx)
	})
}

// arrive makes room for a session where there is none. One that has to go wakes up at once, wherever it waits.
func (s *Server) arrive(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.arriving) >= s.maxConnections() {
		s.arriving[0].evict()
		s.arriving = slices.Delete(s.arriving, 0, 1)
	}
	s.arriving = append(s.arriving, one)
	s.sessions[one] = struct{}{}
}

// seat gives an arriving session its slot. known says that it has shown a valid ticket.
func (s *Server) seat(ctx context.Context, one *session, known bool) error {
	wanted := seat{
		listener: s.config.Name, max: s.maxConnections(), user: one.startup.Value("user"), stranger: !known,
		database: one.database(),
	}
	if full := s.config.Limits.take(wanted); full != nil {
		s.config.Places.Full(full.limit)
		return full.failure()
	}
	one.seat = &wanted
	s.config.Places.Seated(+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveArriving(one)
	return ctx.Err() // it may have had to go in this moment
}

// introduce notes that the server has authenticated the session.
func (s *Server) introduce(one *session) {
	if one.seat != nil && one.seat.stranger {
		s.config.Limits.introduce(one.seat)
	}
}

func (s *Server) forget(one *session) {
	if one.seat != nil {
		s.config.Limits.leave(*one.seat)
		s.config.Places.Seated(-1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveArriving(one)
	delete(s.sessions, one)
}

// leaveArriving wants s.mu held.
func (s *Server) leaveArriving(one *session) {
	if i := slices.Index(s.arriving, one); i >= 0 {
		s.arriving = slices.Delete(s.arriving, i, i+1)
	}
}

// unbindLater waits in the background until a session's backend is gone, and unbinds it. It ends with Serve. With a
// key, what the backend is doing is cancelled until then.
func (s *Server) unbindLater(member *gate.Session, at upstream, key []byte, log *slog.Logger) {
	waits := s.later(s.unbinding, func() {
		ctx, gone := context.WithCancel(s.hard)
		defer gone()
		if key != nil {
			s.background.Go(func() { s.cancelAgain(ctx, at, key) })
		}
		if err := member.Close(s.hard); err != nil {
			log.Warn("binding left to the next takeover", "cause", err.Error())
		}
	})
	if !waits {
		member.Abandon()
		log.Warn("binding left to the next takeover", "cause", "too many sessions wait for their backends to be gone")
	}
}

// cancelAgain repeats a cancel request until ctx is done. One request stops one statement, or comes between two, and
// the backend goes on to what else the client has sent, without noticing that nobody is there.
func (s *Server) cancelAgain(ctx context.Context, at upstream, key []byte) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			s.cancelAt(ctx, at, key)
		}
	}
}

// cancelLater stops what an ended session's backend is doing.
func (s *Server) cancelLater(at upstream, key []byte, log *slog.Logger) {
	if !s.later(s.canceling, func() { s.cancelAt(s.hard, at, key) }) {
		log.Warn("cancel request not delivered", "cause", "too many are under way")
	}
}

// later does something in the background, or reports that there is no place for it.
func (s *Server) later(places chan struct{}, do func()) bool {
	if !take(places) {
		return false
	}
	s.background.Go(func() {
		defer func() { <-places }()
		do()
	})
	return true
}

// take occupies one of the places, if one is free.
func take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}
