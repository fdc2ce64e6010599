package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

const cluster = "c1"

// coordinator stands in for all of them: what is held, and the messages that the watch gets.
type coordinator struct {
	mu       sync.Mutex
	down     error
	held     map[string]watch.Lock
	denied   string // a resource that may not be read
	asked    []string
	began    []string // revisions that watches began from
	messages chan watch.Message
	lose     chan error
	onAsk    func(resource string)
	revision int
}

func newCoordinator() *coordinator {
	return &coordinator{held: map[string]watch.Lock{}, messages: make(chan watch.Message), lose: make(chan error)}
}

func (c *coordinator) Open(_ context.Context, of string) (watch.Coordinator, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != cluster {
		return nil, fmt.Errorf("asked for cluster %q", of)
	}
	return c, c.down
}

func (c *coordinator) Close() {}

func (c *coordinator) Watch(ctx context.Context, revision string, on func(watch.Message) error) error {
	c.mu.Lock()
	c.began = append(c.began, revision)
	c.mu.Unlock()
	if revision == "" {
		if err := on(watch.Message{Revision: c.next()}); err != nil {
			return err
		}
	}
	for {
		select {
		case m := <-c.messages:
			if err := on(m); err != nil {
				return err
			}
		case err := <-c.lose:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *coordinator) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	return fmt.Sprintf("r%d", c.revision)
}

// tell sends a message of these changes; it was taken when it returns.
func (c *coordinator) tell(changes ...watch.Change) {
	c.messages <- watch.Message{Changes: changes, Revision: c.next()}
	synctest.Wait()
}

func (c *coordinator) resync() {
	c.messages <- watch.Message{Revision: c.next(), Resync: true}
	time.Sleep(10 * time.Second) // for all to be looked up
	synctest.Wait()
}

func (c *coordinator) Holders(_ context.Context, resource string) (watch.Lock, error) {
	c.mu.Lock()
	c.asked = append(c.asked, resource)
	lock, denied, onAsk := c.held[resource], resource == c.denied, c.onAsk
	c.mu.Unlock()
	if onAsk != nil {
		onAsk(resource)
	}
	if denied {
		return watch.Lock{}, watch.ErrNotAllowed
	}
	if lock.Resource == "" {
		lock = watch.Lock{Resource: resource, Complete: true}
	}
	return lock, nil
}

// pageSize of List.
const pageSize = 50

func (c *coordinator) List(_ context.Context, after string) (page []watch.Lock, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range slices.Sorted(maps.Keys(c.held)) {
		if resource > after && len(page) < pageSize {
			page = append(page, c.held[resource])
			next = resource
		}
	}
	if len(page) < pageSize {
		next = ""
	}
	return page, next, nil
}

func (c *coordinator) hold(resource string, holders ...watch.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[resource] = watch.Lock{Resource: resource, Holders: holders, Complete: true}
}

func (c *coordinator) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// observer counts; it is a gate's too.
type observer struct {
	mu      sync.Mutex
	watched bool
	resyncs int
	eager   int
	cut     int
	waiting int
	taken   int // floors that went up, by whomever
	refused int
}

func (o *observer) do(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *observer) Watching(is bool)                    { o.do(func() { o.watched = is }) }
func (o *observer) Heard(time.Time)                     {}
func (o *observer) Resynced()                           { o.do(func() { o.resyncs++ }) }
func (o *observer) Overtook(string)                     { o.do(func() { o.eager++ }) }
func (o *observer) Cut(_ string, n int)                 { o.do(func() { o.cut += n }) }
func (o *observer) Waiting(_, _ string, n int)          { o.do(func() { o.waiting = n }) }
func (o *observer) Refused(string, gate.Reason)         { o.do(func() { o.refused++ }) }
func (o *observer) Bound(string, int)                   {}
func (o *observer) BindTook(string, time.Duration)      {}
func (o *observer) TookOver(string, time.Duration, int) { o.do(func() { o.taken++ }) }
func (o *observer) count(of *int) (n int)               { o.do(func() { n = *of }); return n }
func (o *observer) want(t testing.TB, what string, of *int, n int) {
	t.Helper()
	if got := o.count(of); got != n {
		t.Errorf("%s: %d, want %d", what, got, n)
	}
}

// store is memstore whose Raise of some resources hangs or fails.
type store struct {
	*memstore.Store
	mu     sync.Mutex
	hangs  map[string]bool
	fails  error
	slow   time.Duration
	raises int
	floors int // that were asked for
}

func (s *store) Raise(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	s.mu.Lock()
	s.raises++
	hangs, err, slow := s.hangs[claim.Resource], s.fails, s.slow
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fencestore.Accepted{}, ctx.Err()
	}
	if err != nil {
		return fencestore.Accepted{}, err
	}
	accepted, err := s.Store.Raise(ctx, claim)
	time.Sleep(slow)
	return accepted, err
}

func (s *store) Floor(ctx context.Context, cluster, resource string) (fencestore.Floor, error) {
	s.mu.Lock()
	s.floors++
	s.mu.Unlock()
	return s.Store.Floor(ctx, cluster, resource)
}

func (s *store) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// fixture is a proxy with one listener whose store is in memory, and its watch.
type fixture struct {
	t     testing.TB
	from  *coordinator
	store *store
	gate  *gate.Gate
	seen  *observer
	watch *watch.Watch
	log   *logBuffer
	pid   int64
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start has the watch run until the test ends; it is connected and has looked everything up.
func start(t testing.TB, cut bool, change func(*watch.Config, *fixture)) *fixture {
	t.Helper()
	f := &fixture{
		t: t, from: newCoordinator(), seen: &observer{}, log: &logBuffer{},
		store: &store{Store: memstore.New(memstore.Config{}), hangs: map[string]bool{}},
	}
	logger := slog.New(slog.NewTextHandler(f.log, nil))
	of := func() string { return cluster }
	known := watch.NewKnown(100, of)
	f.gate = f.newGate(cut, known)
	config := watch.Config{
		Source: f.from, Cluster: of, Known: known, Observer: f.seen, Logger: logger,
		Listeners: []watch.Listener{{Name: "l", Adapter: "postgres", Gate: f.gate, Cut: cut, Raises: 2}},
	}
	if change != nil {
		change(&config, f)
	}
	f.watch = watch.New(config)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.watch.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	time.Sleep(10 * time.Second)
	synctest.Wait()
	return f
}

func (f *fixture) newGate(cut bool, known gate.Leases) *gate.Gate {
	f.t.Helper()
	g, err := gate.New(gate.Config{
		Listener: "l", Adapter: "postgres", Policy: gate.Require, Store: f.store, AllowUnsigned: true,
		Cluster: func() string { return cluster }, Observer: f.seen, Leases: known, CutEnded: cut,
		RaiseTimeout: 5 * time.Second,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return g
}

// session is one client's connection.
type session struct {
	*gate.Session
	mu   sync.Mutex
	told []*gate.Refusal
}

func (s *session) reasons() (out []gate.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.told {
		out = append(out, r.Reason)
	}
	return out
}

func (s *session) want(t testing.TB, what string, want ...gate.Reason) {
	t.Helper()
	if got := s.reasons(); !slices.Equal(got, want) {
		t.Errorf("%s: the session was told %v, want %v", what, got, want)
	}
}

func claim(resource string, token fencestore.Token, lease string) fencestore.Claim {
	return fencestore.Claim{Cluster: cluster, Resource: resource, Token: token, LeaseHash: lease}
}

func (f *fixture) open(g *gate.Gate) *session {
	s := &session{}
	f.pid++
	s.Session = g.Session(fencestore.Session{PID: f.pid, Started: 1}, "client", func(r *gate.Refusal) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, r)
	})
	return s
}

func (f *fixture) bind(resource string, token fencestore.Token, lease string) *session {
	f.t.Helper()
	s := f.open(f.gate)
	if err := s.Join(context.Background(), []fencestore.Claim{claim(resource, token, lease)}); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) wantFloor(resource string, want fencestore.Token) {
	f.t.Helper()
	floor, err := f.store.Store.Floor(context.Background(), cluster, resource)
	if err != nil || floor.Token != want {
		f.t.Errorf("floor of %s: %d, %v; want %d", resource, floor.Token, err, want)
	}
}

func wantReason(t testing.TB, what string, err error, want gate.Reason) {
	t.Helper()
	if r, ok := errors.AsType[*gate.Refusal](err); !ok || r.Reason != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func granted(resource string, token fencestore.Token, lease string) watch.Change {
	return watch.Change{Kind: watch.Granted, Resource: resource, Token: token, Lease: lease}
}

func ended(resource string, token fencestore.Token, lease string) watch.Change {
	return watch.Change{Kind: watch.Ended, Resource: resource, Token: token, Lease: lease}
}

func broken(resource string, token fencestore.Token, lease string) watch.Change {
	return watch.Change{Kind: watch.Broken, Resource: resource, Token: token, Lease: lease}
}

// inVirtualTime runs a test in a bubble.
func inVirtualTime(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
