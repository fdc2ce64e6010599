package gate_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
	"github.com/lychgate/lychgate/proxy/gate"
)

const cluster = "c1"

// observer counts.
type observer struct {
	mu      sync.Mutex
	refused map[gate.Reason]int
	bound   int
	took    int
	ended   int
}

func (o *observer) Refused(_ string, r gate.Reason) { o.do(func() { o.refused[r]++ }) }
func (o *observer) Bound(_ string, delta int)       { o.do(func() { o.bound += delta }) }
func (o *observer) BindTook(string, time.Duration)  {}
func (o *observer) TookOver(_ string, _ time.Duration, n int) {
	o.do(func() { o.took++; o.ended += n })
}

func (o *observer) do(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// fixture is a gate in front of a store in memory.
type fixture struct {
	t      testing.TB
	gate   *gate.Gate
	store  *memstore.Store
	signer *ticket.Signer
	seen   *observer
	log    *strings.Builder
	alive  map[fencestore.Session]bool
	mu     sync.Mutex
}

type verifier struct{ ring *ticket.KeyRing }

func (v verifier) Verify(_ context.Context, raw string) (ticket.Claims, error) {
	return v.ring.Verify(raw)
}

func newFixture(t testing.TB, change func(*gate.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, seen: &observer{refused: map[gate.Reason]int{}}, log: &strings.Builder{}, alive: map[fencestore.Session]bool{}}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.signer, err = ticket.NewSigner(private); err != nil {
		t.Fatal(err)
	}
	ring, err := ticket.NewKeyRing(cluster, []ticket.Key{f.signer.Key()})
	if err != nil {
		t.Fatal(err)
	}
	f.store = memstore.New(memstore.Config{
		Alive: func(s fencestore.Session) bool { f.mu.Lock(); defer f.mu.Unlock(); return f.alive[s] },
		End:   func(_ context.Context, s fencestore.Session) error { f.kill(s); return nil },
	})
	config := gate.Config{
		Listener: "l", Adapter: "postgres", Policy: gate.Require, Verifier: verifier{ring}, Store: f.store, Observer: f.seen,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	if change != nil {
		change(&config)
	}
	if f.gate, err = gate.New(config); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) kill(s fencestore.Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive[s] = false
}

func (f *fixture) ticket(resource string, token lease.Token) string {
	f.t.Helper()
	return f.sign(resource, token, lease.Exclusive, 0)
}

// sign signs a grant; holder tells apart those of one token.
func (f *fixture) sign(resource string, token lease.Token, mode lease.Mode, holder byte) string {
	f.t.Helper()
	raw, err := f.signer.Sign(ticket.Claims{
		Cluster: cluster, Incarnation: token.Incarnation(), Resource: lease.Resource(resource), Token: token, Mode: mode,
		Lease: lease.NewID(0, [14]byte{byte(token), holder}).Hash(), Client: ticket.ClientHash("i", "c"),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return raw
}

// session opens one and joins it to what its tickets say.
func (f *fixture) session(pid int64, end func(*gate.Refusal), tickets ...string) (*gate.Session, error) {
	f.t.Helper()
	plan, err := f.gate.Admit(f.t.Context(), gate.Shown{Tickets: tickets})
	if err != nil {
		return nil, err
	}
	id := fencestore.Session{PID: pid, Started: 1}
	f.mu.Lock()
	f.alive[id] = true
	f.mu.Unlock()
	if end == nil {
		end = func(*gate.Refusal) {}
	}
	s := f.gate.Session(id, "client", end)
	return s, s.Join(f.t.Context(), plan.Claims)
}

func (f *fixture) mustSession(pid int64, end func(*gate.Refusal), tickets ...string) *gate.Session {
	f.t.Helper()
	s, err := f.session(pid, end, tickets...)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) bindings() []string {
	var list []string
	for _, b := range f.gate.Bindings() {
		list = append(list, fmt.Sprintf("%s:%d by %s", b.Resource, b.Token, b.Session))
	}
	return list
}

func wantReason(t testing.TB, err error, want gate.Reason) *gate.Refusal {
	t.Helper()
	var r *gate.Refusal
	if !errors.As(err, &r) || r.Reason != want {
		t.Fatalf("got %v, want %v", err, want)
	}
	return r
}

func TestTakeover(t *testing.T) {
	f := newFixture(t, nil)
	var told *gate.Refusal
	f.mustSession(1, func(r *gate.Refusal) { told = r }, f.ticket("a", 41))
	f.mustSession(2, nil, f.ticket("b", 41))
	f.mustSession(3, nil, f.ticket("a", 42))
	if told == nil || told.Reason != gate.StaleToken || told.Floor.Token != 42 || told.Claim.Token != 41 {
		t.Errorf("the old session was told %v", told)
	}
	_, err := f.session(4, nil, f.ticket("a", 41))
	r := wantReason(t, err, gate.StaleToken)
	if !strings.Contains(r.Detail, "41") || !strings.Contains(r.Detail, "42") || r.Hint == "" {
		t.Errorf("detail %q, hint %q", r.Detail, r.Hint)
	}
	if f.seen.took != 3 || f.seen.ended != 1 || f.seen.refused[gate.StaleToken] != 1 {
		t.Errorf("counted %+v", f.seen)
	}
}

func TestJoinIsAllOrNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.mustSession(1, nil, f.ticket("b", 9))
	s := f.mustSession(2, nil, f.ticket("c", 1))
	claims := []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 1}, {Cluster: cluster, Resource: "b", Token: 8}, {Cluster: cluster, Resource: "c", Token: 2}}
	wantReason(t, s.Join(t.Context(), claims), gate.StaleToken)
	if got, want := f.bindings(), []string{"b:9 by 1", "c:1 by 2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	list, err := f.store.Bindings(t.Context(), cluster, 10)
	if err != nil || len(list) != 2 {
		t.Errorf("the store has %v, %v", list, err)
	}
	if f.seen.bound != 2 {
		t.Errorf("%d bindings counted, want 2", f.seen.bound)
	}
}

// unsureStore loses the answer to the Bind of one resource, which it has carried out, and then fails Unbind as asked.
type unsureStore struct {
	fencestore.Store
	lost   string
	lose   func()
	unbind error
}

func (s unsureStore) Bind(ctx context.Context, claim fencestore.Claim, id fencestore.Session) (fencestore.Accepted, error) {
	accepted, err := s.Store.Bind(ctx, claim, id)
	if claim.Resource == s.lost {
		s.lose()
		return fencestore.Accepted{}, ctx.Err()
	}
	return accepted, err
}

func (s unsureStore) Unbind(ctx context.Context, claim fencestore.Claim, id fencestore.Session, idle bool) (bool, error) {
	if err := errors.Join(ctx.Err(), s.unbind); err != nil {
		return false, err
	}
	return s.Store.Unbind(ctx, claim, id, idle)
}

func TestJoinThatIsCancelledLeavesNothing(t *testing.T) {
	for name, broken := range map[string]error{"the store works": nil, "the store fails": errors.New("unbind is broken")} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			f := newFixture(t, func(c *gate.Config) { c.Store = unsureStore{c.Store, "b", cancel, broken} })
			s := f.mustSession(1, nil)
			err := s.Join(ctx, []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 1}, {Cluster: cluster, Resource: "b", Token: 1}})
			refusal, ok := err.(*gate.Refusal) //nolint:errorlint // the contract: the error itself is one
			if !ok || refusal.Reason != gate.NotReady || !errors.Is(err, context.Canceled) {
				t.Fatalf("got %T %v, want a refusal", err, err)
			}
			if f.seen.refused[gate.NotReady] != 1 {
				t.Errorf("counted %+v", f.seen)
			}
			list, err := f.store.Bindings(t.Context(), cluster, 10)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case broken == nil && (len(list) != 0 || len(f.bindings()) != 0):
				t.Errorf("left over: in the store %v, in the table %v", list, f.bindings())
			case broken != nil && (len(list) != 2 || !errors.Is(refusal, broken)):
				t.Errorf("the store has %v; the refusal's cause is %v", list, refusal.Err)
			}
		})
	}
}

func TestLeaveAndClose(t *testing.T) {
	f := newFixture(t, nil)
	s := f.mustSession(1, nil, f.ticket("a", 1), f.ticket("b", 1))
	if err := s.Leave(t.Context(), []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 1}}); err != nil {
		t.Fatal(err)
	}
	if got, want := f.bindings(), []string{"b:1 by 1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f.kill(fencestore.Session{PID: 1, Started: 1})
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := f.bindings(); len(got) != 0 || f.seen.bound != 0 {
		t.Errorf("left over: %v, %d counted", got, f.seen.bound)
	}
}

func TestCloseWaitsForTheSessionToBeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *gate.Config) { c.GoneFor = time.Minute })
		s := f.mustSession(1, nil, f.ticket("a", 1))
		time.AfterFunc(30*time.Second, func() { f.kill(fencestore.Session{PID: 1, Started: 1}) })
		begin := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 32*time.Second {
			t.Errorf("took %v", took)
		}
		s = f.mustSession(2, nil, f.ticket("a", 1))
		if err := s.Close(t.Context()); err == nil { // it never goes
			t.Error("a living session was unbound")
		}
		if list, _ := f.store.Bindings(t.Context(), cluster, 10); len(list) != 1 {
			t.Errorf("the store has %v", list)
		}
	})
}

func TestEndLeaseEndsOneHolderOfASharedToken(t *testing.T) {
	f := newFixture(t, nil)
	told := map[int64]*gate.Refusal{}
	for pid, hash := range map[int64]string{1: "x", 2: "y"} {
		id := fencestore.Session{PID: pid, Started: 1}
		f.alive[id] = true
		s := f.gate.Session(id, "client", func(r *gate.Refusal) { told[pid] = r })
		if err := s.Join(t.Context(), []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 1, LeaseHash: hash}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.gate.EndLease(""); got != 0 {
		t.Errorf("an empty hash ended %d", got)
	}
	if got := f.gate.EndLease("x"); got != 1 || told[1] == nil || told[1].Reason != gate.LeaseEnded || told[2] != nil {
		t.Errorf("%d ended, told %v", got, told)
	}
}

func TestExplainWaitsForTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		s := f.mustSession(1, nil, f.ticket("a", 41))
		time.AfterFunc(time.Second, func() {
			_, _ = f.store.Raise(context.Background(), fencestore.Claim{Cluster: cluster, Resource: "a", Token: 42})
		})
		if r := s.Explain(t.Context()); r == nil || r.Reason != gate.StaleToken || r.Floor.Token != 42 {
			t.Errorf("got %v", r)
		}
		other := f.mustSession(2, nil, f.ticket("b", 1))
		begin := time.Now()
		if r := other.Explain(t.Context()); r != nil || time.Since(begin) < 2*time.Second {
			t.Errorf("got %v after %v", r, time.Since(begin))
		}
	})
}

func TestTableIsBounded(t *testing.T) {
	f := newFixture(t, func(c *gate.Config) { c.MaxBindings = 2 })
	f.mustSession(1, nil, f.ticket("a", 1), f.ticket("b", 1))
	_, err := f.session(2, nil, f.ticket("c", 1))
	wantReason(t, err, gate.NotReady)
	f.mustSession(3, nil) // nothing to bind
}

func TestStoreErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want gate.Reason
	}{
		{&fencestore.Refusal{Reason: fencestore.StaleToken}, gate.StaleToken},
		{&fencestore.Refusal{Reason: fencestore.TakeoverTimeout}, gate.TakeoverTimeout},
		{&fencestore.Refusal{Reason: fencestore.NotAllowed}, gate.NotAllowed},
		{&fencestore.Refusal{Reason: fencestore.NotReady}, gate.NotReady},
		{&fencestore.Refusal{Reason: fencestore.BadToken}, gate.TicketInvalid},
		{errors.New("lost"), gate.NotReady},
		{context.DeadlineExceeded, gate.NotReady},
	} {
		f := newFixture(t, func(g *gate.Config) { g.Store = failingStore{g.Store, c.err} })
		_, err := f.session(1, nil, f.ticket("a", 1))
		wantReason(t, err, c.want)
	}
}

// failingStore fails every decision.
type failingStore struct {
	fencestore.Store
	err error
}

func (s failingStore) Raise(context.Context, fencestore.Claim) (fencestore.Accepted, error) {
	return fencestore.Accepted{}, s.err
}

func TestTicketReasonsHaveTheirOwnDetail(t *testing.T) {
	details := map[string]ticket.Reason{}
	for _, reason := range []ticket.Reason{ticket.Malformed, ticket.TooLong, ticket.BadSignature, ticket.UnknownKey, ticket.OtherCluster, ticket.Unavailable} {
		f := newFixture(t, func(c *gate.Config) { c.Verifier = failingVerifier{&ticket.Error{Reason: reason}} })
		_, err := f.session(1, nil, "secret-ticket")
		want := gate.TicketInvalid
		if reason == ticket.Unavailable { // the ticket may be good
			want = gate.NotReady
		}
		r := wantReason(t, err, want)
		if other, taken := details[r.Detail]; taken || r.Detail == "" {
			t.Errorf("%v and %v have the same detail %q", reason, other, r.Detail)
		}
		details[r.Detail] = reason
		if strings.Contains(r.Error()+f.log.String(), "secret") {
			t.Error("the ticket is in the error or the log")
		}
	}
}

type failingVerifier struct{ err error }

func (v failingVerifier) Verify(context.Context, string) (ticket.Claims, error) {
	return ticket.Claims{}, v.err
}

func TestConfigIsChecked(t *testing.T) {
	store := memstore.New(memstore.Config{})
	good := gate.Config{Adapter: "x", Policy: gate.Allow, Store: store, Verifier: failingVerifier{}}
	if _, err := gate.New(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*gate.Config){
		"policy":              func(c *gate.Config) { c.Policy = 0 },
		"adapter":             func(c *gate.Config) { c.Adapter = "" },
		"store":               func(c *gate.Config) { c.Store = nil },
		"verifier":            func(c *gate.Config) { c.Verifier = nil },
		"cluster of unsigned": func(c *gate.Config) { c.AllowUnsigned = true },
	} {
		bad := good
		change(&bad)
		if _, err := gate.New(bad); err == nil {
			t.Errorf("without %s: accepted", name)
		}
	}
}

func TestClaimsCarryTheMode(t *testing.T) {
	f := newFixture(t, nil)
	one := f.mustSession(1, nil, f.sign("a", 5, lease.Shared, 1))
	f.mustSession(2, nil, f.sign("a", 5, lease.Shared, 2), f.ticket("b", 5))
	var got []string
	for _, b := range f.gate.Bindings() {
		got = append(got, fmt.Sprintf("%s:%d %s by %s", b.Resource, b.Token, b.Mode, b.Session))
	}
	slices.Sort(got)
	if want := []string{"a:5 shared by 1", "a:5 shared by 2", "b:5 exclusive by 2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	list, err := f.store.Bindings(t.Context(), cluster, 10)
	if err != nil || len(list) != 3 || list[0].Mode != fencestore.Shared || list[1].Mode != fencestore.Shared || list[2].Mode != fencestore.Exclusive {
		t.Errorf("the store has %+v, %v", list, err)
	}
	f.mustSession(3, nil, f.ticket("a", 6))
	if r := one.Stale(t.Context()); r == nil || r.Reason != gate.StaleToken {
		t.Errorf("a shared holder behind an exclusive successor: got %v, want it stale", r)
	}
	if f.alive[fencestore.Session{PID: 1, Started: 1}] || f.alive[fencestore.Session{PID: 2, Started: 1}] {
		t.Error("a shared holder outlives its exclusive successor's takeover")
	}
}
