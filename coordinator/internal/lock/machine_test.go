package lock_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// started returns a machine after its Init.
func started(t *testing.T, config lock.Config) *lock.Machine {
	t.Helper()
	m := lock.New()
	results, _ := m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Version: 1, Config: config}}})
	if results[0] != (lock.Done{}) {
		t.Fatalf("init gave %+v", results[0])
	}
	return m
}

func apply(m *lock.Machine, at time.Duration, commands ...lock.Command) ([]lock.Result, []lock.Event) {
	return m.Apply(m.Info().Index+1, lock.Entry{Now: lock.LeaseTime(at), Commands: commands})
}

func acquire(client, resource string, n byte) lock.Acquire {
	return lock.Acquire{
		Identity: "me", Client: lease.ClientID(client), Request: lease.RequestID(fmt.Sprint(n)),
		Resource: lease.Resource(resource), Mode: lease.Exclusive, Lease: lease.ID{2: n},
	}
}

func waiting(c lock.Acquire, call uint64) lock.Acquire {
	c.Wait, c.Call = time.Minute, call
	return c
}

func TestBeforeInit(t *testing.T) {
	m := lock.New()
	id := lease.ID{1}
	results, events := apply(m, time.Second,
		acquire("a", "r", 1), lock.Renew{Lease: id}, lock.Release{Lease: id}, lock.Cancel{}, lock.Detach{}, lock.Break{})
	for i, r := range results {
		if !reflect.DeepEqual(r, lock.Refused{Reason: lock.ReasonNotInitialised}) {
			t.Errorf("command %d gave %+v, want not_initialised", i, r)
		}
	}
	if len(events) > 0 || m.Timed() {
		t.Errorf("events %v, timed %v, want none", events, m.Timed())
	}
	results, events = apply(m, time.Second, lock.NewLeader{Node: "n", Term: 1}, lock.PutKey{Node: "n", KeyID: "k"}, lock.Tick{})
	if want := []lock.Result{lock.Done{}, lock.Done{}, lock.Done{}}; !reflect.DeepEqual(results, want) {
		t.Errorf("got %+v, want %+v", results, want)
	}
	if len(events) != 2 || m.Timed() {
		t.Errorf("events %v, timed %v, want two and false", events, m.Timed())
	}
}

func TestInit(t *testing.T) {
	m := started(t, baseConfig())
	other := baseConfig()
	other.MaxTTL++
	if results, _ := apply(m, 0, lock.Init{Cluster: "other", Version: 9, Config: other}); results[0] != (lock.Done{}) {
		t.Errorf("a second init gave %+v, want done", results[0])
	}
	if info := m.Info(); info.Cluster != "c" || info.Version != 1 || info.Config != baseConfig() {
		t.Errorf("a second init changed the cluster: %+v", info)
	}
	results, _ := apply(lock.New(), 0, lock.Init{Cluster: "c", Version: 1})
	if !reflect.DeepEqual(results[0], lock.Refused{Reason: lock.ReasonConfigInvalid}) {
		t.Errorf("init without a config gave %+v, want config_invalid", results[0])
	}
}

func TestConfigValidate(t *testing.T) {
	if err := baseConfig().Validate(); err != nil {
		t.Errorf("the base config: %v", err)
	}
	for name, change := range map[string]func(*lock.Config){
		"DefaultTTL":  func(c *lock.Config) { c.DefaultTTL = 0 },
		"MinTTL":      func(c *lock.Config) { c.MinTTL = -1 },
		"MaxTTL":      func(c *lock.Config) { c.MaxTTL = 1 << 62 },
		"MaxWait":     func(c *lock.Config) { c.MaxWait = 0 },
		"RetryWindow": func(c *lock.Config) { c.RetryWindow = 0 },
		"Grace":       func(c *lock.Config) { c.Grace = 0 },
		"ClaimWindow": func(c *lock.Config) { c.ClaimWindow = 0 },
		"HeadStart":   func(c *lock.Config) { c.HeadStart = 0 },
		"MaxWaiters":  func(c *lock.Config) { c.MaxWaiters = 0 },
		"MaxRequests": func(c *lock.Config) { c.MaxRequests = -1 },
		"MaxExpiries": func(c *lock.Config) { c.MaxExpiries = 0 },
		"between":     func(c *lock.Config) { c.DefaultTTL = c.MaxTTL + 1 },
	} {
		config := baseConfig()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
}

func TestKeys(t *testing.T) {
	m := started(t, baseConfig())
	k1, k2, k3 := lock.PutKey{Node: "a", KeyID: "2"}, lock.PutKey{Node: "b", KeyID: "1"}, lock.PutKey{Node: "a", KeyID: "1"}
	_, events := apply(m, 0, k1, k2, k3, k1)
	if len(events) != 3 {
		t.Errorf("got %d events, want 3: the fourth key is known", len(events))
	}
	if got, want := m.Keys(), []lock.Key{{Node: "a", KeyID: "1"}, {Node: "a", KeyID: "2"}, {Node: "b", KeyID: "1"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("keys are %v, want %v", got, want)
	}
}

func TestTokensExhausted(t *testing.T) {
	m := started(t, baseConfig())
	apply(m, 0, acquire("a", "r", 1), waiting(acquire("b", "r", 2), 1), waiting(acquire("c", "r", 3), 2))
	m.SpendTokens(1)
	_, events := apply(m, 0, lock.Release{Identity: "me", Lease: lease.ID{2: 1}})
	granted, ok := events[len(events)-1].(lock.LeaseGranted)
	if want := lease.Token(1)<<lease.CounterBits - 1; !ok || granted.Token != want {
		t.Fatalf("the last event is %+v, want a grant of the last token %v", events[len(events)-1], want)
	}
	refused := lock.Refused{Reason: lock.ReasonTokensExhausted}
	results, events := apply(m, 0, lock.Release{Identity: "me", Lease: lease.ID{2: 2}}, acquire("d", "s", 4), lock.Break{Resource: "r"})
	if !reflect.DeepEqual(results[1], lock.Result(refused)) || !reflect.DeepEqual(results[2], lock.Result(refused)) {
		t.Errorf("got %+v, want two refusals for want of tokens", results[1:])
	}
	if len(events) != 1 {
		t.Errorf("got the events %+v, want the end of the lease only", events)
	}
	if results, _ := apply(m, 2*time.Minute, lock.Tick{}); len(results) != 1 || m.Info().Waiters != 0 {
		t.Errorf("the waiter that could not be granted is still there: %+v", m.Info())
	}
}

func TestList(t *testing.T) {
	m := started(t, baseConfig())
	apply(m, 0, acquire("a", "b/2", 1), acquire("a", "a", 2), acquire("a", "b/1", 3), acquire("a", "b/3", 4), acquire("a", "c", 5))
	for _, test := range []struct {
		prefix string
		after  lease.Resource
		limit  int
		want   string
	}{
		{"", "", 10, "a b/1 b/2 b/3 c"},
		{"", "", 2, "a b/1"},
		{"", "b/1", 2, "b/2 b/3"},
		{"", "c", 2, ""},
		{"b/", "", 10, "b/1 b/2 b/3"},
		{"b/", "b/1", 1, "b/2"},
		{"z", "", 10, ""},
		{"", "", 0, ""},
		{"", "", -1, ""},
	} {
		var got []string
		for _, v := range m.List(test.prefix, test.after, test.limit) {
			got = append(got, string(v.Resource))
			if !reflect.DeepEqual(v, m.Get(v.Resource)) || len(v.Holders) != 1 {
				t.Errorf("%s is listed as %+v", v.Resource, v)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("list %q after %q limit %d: got %v, want %s", test.prefix, test.after, test.limit, got, test.want)
		}
	}
}

func TestViewIsBounded(t *testing.T) {
	config := baseConfig()
	config.MaxWaiters = 2 * lock.MaxViewWaiters
	m := started(t, config)
	apply(m, 0, acquire("a", "r", 255))
	for n := range byte(lock.MaxViewWaiters + 5) {
		apply(m, 0, waiting(acquire(fmt.Sprintf("w%d", n), "r", n+1), uint64(n)+1))
	}
	v := m.Get("r")
	if len(v.Waiters) != lock.MaxViewWaiters || v.Waiting != lock.MaxViewWaiters+5 || v.Waiters[0].Client != "w0" {
		t.Errorf("got %d of %d waiters from %q", len(v.Waiters), v.Waiting, v.Waiters[0].Client)
	}
}

// TestTimed follows a machine until nothing is timed; at each step it must say so, or nobody would tick.
func TestTimed(t *testing.T) {
	m := started(t, baseConfig())
	if m.Timed() {
		t.Error("an idle machine is timed")
	}
	apply(m, time.Second, lock.NewLeader{Node: "n", Term: 1})
	if !m.Timed() {
		t.Error("a head start is not timed")
	}
	apply(m, 2*time.Second, lock.Tick{})
	if m.Timed() {
		t.Error("the head start is over and still timed")
	}
	a := acquire("a", "r", 1)
	a.Sequence = 1
	apply(m, 2*time.Second, a)
	apply(m, 40*time.Second, lock.Tick{})
	if info := m.Info(); info.Leases != 0 || info.Requests != 1 || !m.Timed() {
		t.Errorf("a remembered request is not timed: %+v", info)
	}
	refused := acquire("a", "r", 2)
	refused.TTL, refused.Acknowledged = time.Nanosecond, 1
	apply(m, 50*time.Second, refused)
	if info := m.Info(); info.Requests != 0 || info.Clients != 1 || !m.Timed() {
		t.Errorf("an acknowledgement is not timed: %+v", info)
	}
	apply(m, 412*time.Second, lock.Tick{})
	if m.Timed() || m.Info().Clients != 0 {
		t.Errorf("something is timed for ever: %+v", m.Info())
	}
}

func TestSameLogOnThreeMachines(t *testing.T) {
	// The stamps come from leaders whose clocks are skewed: they jump ahead, fall back and stand still.
	stamps := []time.Duration{0, 5, 3, 3, 40, 39, 41, 41, 10, 90, 89, 400, 300, 900}
	machines := []*lock.Machine{started(t, baseConfig()), started(t, baseConfig()), started(t, baseConfig())}
	for i, at := range stamps {
		n := byte(i + 1)
		a := acquire(fmt.Sprintf("c%d", i%3), fmt.Sprintf("r%d", i%2), n)
		a.AsOf = machines[0].Info().Now
		commands := []lock.Command{
			waiting(a, uint64(n)),
			lock.Renew{Identity: "me", Lease: lease.ID{2: n - 1}},
			lock.Release{Identity: "me", Lease: lease.ID{2: n - 3}},
		}
		if i%5 == 4 {
			commands = append(commands, lock.NewLeader{Node: "n", Term: uint64(i)})
		}
		if i == 6 {
			machines[2] = restore(t, machines[2])
		}
		wantResults, wantEvents := apply(machines[0], at*time.Second, commands...)
		for j, m := range machines[1:] {
			results, events := apply(m, at*time.Second, commands...)
			if !reflect.DeepEqual(results, wantResults) || !reflect.DeepEqual(events, wantEvents) {
				t.Fatalf("entry %d, machine %d: outcomes differ", i, j+1)
			}
			if m.Digest() != machines[0].Digest() {
				t.Fatalf("entry %d, machine %d: digests differ", i, j+1)
			}
		}
	}
}

// TestEqualDeadlinesAfterRestore restores between any two steps of a story in which many deadlines are equal and
// moved around: the tokens of the waiters must not depend on it.
func TestEqualDeadlinesAfterRestore(t *testing.T) {
	const n = 9
	var log []lock.Entry
	entry := func(at time.Duration, commands ...lock.Command) {
		log = append(log, lock.Entry{Now: lock.LeaseTime(at), Commands: commands})
	}
	for i := range byte(n) {
		a := acquire("a", fmt.Sprintf("r%d", i), i+1)
		a.TTL = time.Duration(10+i*7%n) * time.Second
		entry(0, a, waiting(acquire("b", fmt.Sprintf("r%d", i), 100+i), uint64(i)+1))
	}
	for i := range byte(n) {
		entry(time.Second, lock.Renew{Identity: "me", Lease: lease.ID{2: 1 + i*5%n}, TTL: 10 * time.Second})
	}
	entry(11*time.Second, lock.Tick{})
	want := tokens(t, log, -1)
	for at := range log {
		if got := tokens(t, log, at); !reflect.DeepEqual(got, want) {
			t.Errorf("restored before entry %d: got the grants\n%v\nwant\n%v", at, got, want)
		}
	}
	if len(want) != 2*n || want[n] != "r0 10" {
		t.Errorf("the grants are %v, want those of r0 to r8 in order after the first nine", want)
	}
}

func tokens(t *testing.T, log []lock.Entry, restoreAt int) []string {
	t.Helper()
	m := started(t, baseConfig())
	var grants []string
	for i, e := range log {
		if i == restoreAt {
			m = restore(t, m)
		}
		_, events := m.Apply(uint64(i)+2, e)
		for _, event := range events {
			if g, ok := event.(lock.LeaseGranted); ok {
				grants = append(grants, fmt.Sprintf("%s %v", g.Resource, g.Token))
			}
		}
	}
	return grants
}

func TestNamesAreComplete(t *testing.T) {
	for name, text := range map[string]string{
		"reason": lock.ReasonTooManyTenantRequests.String(), "end": lock.EndRecovered.String(),
		"wait": lock.WaitRecovered.String(), "state": lock.RequestEnded.String(),
	} {
		if strings.HasPrefix(text, "unknown") {
			t.Errorf("the last %s has no name", name)
		}
	}
	if got := (lock.ReasonTooManyTenantRequests + 1).String(); got != "unknown(38)" {
		t.Errorf("a reason that is none is %q", got)
	}
	for r := lock.ReasonHeld; r <= lock.ReasonTooManyTenantRequests; r++ {
		if strings.HasPrefix(r.String(), "unknown") {
			t.Errorf("reason %d has no name", uint8(r))
		}
	}
}

// A retry of what is over has to repeat the owner as it was given, also where it says no more than the client's name does.
func TestTheOwnerOfWhatIsOverIsRemembered(t *testing.T) {
	for _, owner := range []string{"", "c", "thread-1"} {
		m := started(t, baseConfig())
		index := m.Info().Index
		apply := func(c lock.Command) lock.Result {
			index++
			results, _ := m.Apply(index, lock.Entry{Commands: []lock.Command{c}})
			return results[0]
		}
		first := numbered(1, "c", "r", 0)
		first.Owner = owner
		apply(first)
		apply(lock.Release{Identity: "me", Lease: first.Lease})
		for _, other := range []string{"", "c", "thread-1"} {
			again := first
			again.Owner = other
			want := lock.ReasonRequestMismatch
			if other == owner {
				want = lock.ReasonRequestEnded
			}
			if got, ok := apply(again).(lock.Refused); !ok || got.Reason != want {
				t.Errorf("owner %q, retried with %q: got %v, want %v", owner, other, got.Reason, want)
			}
		}
	}
}
