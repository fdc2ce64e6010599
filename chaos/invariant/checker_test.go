package invariant

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

const (
	second = Instant(time.Second)
	ttl    = 10 * time.Second
)

// The steps below are short forms: request r of client r, owned by identity "me", on resource "x", unless said.

func request(name string) Request {
	return Request{Identity: "me", Client: lease.ClientID(name), ID: lease.RequestID(name)}
}

func hash(name string) lease.IDHash {
	var h lease.IDHash
	copy(h[:], name)
	return h
}

func granted(at Instant, name string, token lease.Token) Granted {
	return Granted{
		At: at * second, Resource: "x", Lease: hash(name), Token: token, Mode: lease.Exclusive,
		Request: request(name), TTL: ttl, AsOf: at * second,
	}
}

func shared(at Instant, name string, token lease.Token) Granted {
	g := granted(at, name, token)
	g.Mode = lease.Shared
	return g
}

func asOf(g Granted, at Instant) Granted {
	g.AsOf = at * second
	return g
}

func of(g Granted, r string) Granted {
	g.Request = request(r)
	return g
}

func renewed(at Instant, name string) Renewed {
	return Renewed{At: at * second, Lease: hash(name), By: "me", TTL: ttl}
}

func ended(at Instant, name string, cause Cause) Ended {
	return Ended{At: at * second, Lease: hash(name), Cause: cause, By: "me"}
}

func queued(at Instant, name string) Queued {
	return Queued{
		At: at * second, Resource: "x", Request: request(name), Mode: lease.Exclusive,
		Attached: true, Deadline: (at + 60) * second, AsOf: at * second,
	}
}

func unqueued(at Instant, name string) Unqueued {
	return Unqueued{At: at * second, Request: request(name)}
}

func held(name string, token lease.Token) Reported {
	return Reported{Request: request(name), State: Held, Lease: hash(name), Token: token}
}

func TestLegalHistories(t *testing.T) {
	for name, steps := range map[string][]Event{
		"hand over":           {granted(1, "a", 1), ended(2, "a", Released), granted(3, "b", 2)},
		"gap in the tokens":   {granted(1, "a", 1), ended(2, "a", Released), granted(3, "b", 9)},
		"expiry at the end":   {granted(1, "a", 1), ended(11, "a", Expired), granted(11, "b", 2)},
		"renewal prolongs":    {granted(1, "a", 1), renewed(9, "a"), ended(19, "a", Expired)},
		"broken early":        {granted(1, "a", 1), ended(2, "a", Broken), TokenIssued{"x", 2}, granted(2, "b", 3)},
		"queue in order":      {granted(1, "a", 1), queued(2, "b"), queued(3, "c"), ended(4, "a", Released), granted(4, "b", 2), ended(5, "b", Released), granted(5, "c", 3)},
		"passing the absent":  {granted(1, "a", 1), queued(2, "b"), queued(3, "c"), Detached{request("b")}, ended(4, "a", Released), granted(4, "c", 2), Attached{request("b")}, ended(5, "c", Released), granted(5, "b", 3)},
		"newcomer and absent": {granted(1, "a", 1), queued(2, "b"), Detached{request("b")}, ended(4, "a", Released), granted(5, "c", 2)},
		"passing the overdue": {granted(1, "a", 1), queued(2, "b"), renewed(8, "a"), renewed(16, "a"), queued(20, "c"), ended(62, "a", Released), granted(62, "c", 2), unqueued(62, "b")},
		"shared period":       {shared(1, "a", 1), shared(2, "b", 1), ended(3, "a", Released), shared(4, "c", 1), ended(5, "b", Released), ended(6, "c", Released), granted(7, "d", 2)},
		"two shared periods":  {shared(1, "a", 1), ended(2, "a", Released), shared(3, "b", 2)},
		"retry while held":    {granted(1, "a", 1), held("a", 1), renewed(2, "a"), held("a", 1), ended(3, "a", Released), Reported{Request: request("a"), State: Over}},
		"retry while waiting": {granted(1, "a", 1), queued(2, "b"), Reported{Request: request("b"), State: Waiting}},
		"id used much later":  {granted(1, "a", 1), ended(2, "a", Released), asOf(granted(90, "a", 2), 80)},
		"forestalled":         {Forestalled{1 * second, request("a"), 1 * second}, granted(2, "b", 1)},
		"cancelled":           {granted(1, "a", 1), ended(2, "a", Cancelled)},
		"election, head":      {granted(1, "a", 1), queued(2, "b"), queued(3, "c"), Elected{8 * second}, ended(4, "a", Released), Attached{request("b")}, granted(5, "b", 2)},
		"after the start":     {granted(1, "a", 1), queued(2, "b"), queued(3, "c"), Elected{8 * second}, ended(4, "a", Released), Attached{request("c")}, granted(8, "c", 2)},
		"floors rise":         {granted(1, "a", 5), FloorRaised{"x", 5}, FloorRaised{"x", 5}, WriteAccepted{"x", 5}, FloorRead{"x", 5}},
		"floors of others":    {granted(1, "a", 5), FloorRaised{"x", 5}, FloorRead{"y", 0}, WriteAccepted{"y", 1}},
		"majority":            {Stored{1, []string{"n1", "n3"}}, granted(1, "a", 1), held("a", 1), Stored{2, []string{"n1", "n2", "n3"}}, renewed(2, "a"), ended(3, "a", Released)},
		"equal digests":       {Applied{"n1", 1, [32]byte{1}}, Applied{"n2", 1, [32]byte{1}}, Applied{"n1", 2, [32]byte{2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(steps); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestIllegalHistories(t *testing.T) {
	other := func(e Ended) Ended { e.By = "other"; return e }
	otherRenew := func(e Renewed) Renewed { e.By = "other"; return e }
	absent := func(q Queued) Queued { q.Attached = false; return q }
	elsewhere := func(g Granted) Granted { g.Resource = "y"; return g }
	for _, test := range []struct {
		name      string
		invariant int
		steps     []Event
	}{
		{"two exclusive", 1, []Event{granted(1, "a", 1), granted(2, "b", 2)}},
		{"exclusive beside shared", 1, []Event{shared(1, "a", 1), granted(2, "b", 2)}},
		{"shared beside exclusive", 1, []Event{granted(1, "a", 1), shared(2, "b", 1)}},
		{"one id, two leases", 1, []Event{granted(1, "a", 1), elsewhere(of(granted(2, "a", 2), "b"))}},
		{"token repeated", 2, []Event{granted(1, "a", 1), ended(2, "a", Released), granted(3, "b", 1)}},
		{"token goes back", 2, []Event{granted(1, "a", 7), ended(2, "a", Released), granted(3, "b", 6)}},
		{"token goes back elsewhere", 2, []Event{granted(1, "a", 7), elsewhere(granted(3, "b", 6))}},
		{"token 0", 2, []Event{granted(1, "a", 0)}},
		{"token too large", 2, []Event{granted(1, "a", lease.MaxToken+1)}},
		{"break takes no new token", 2, []Event{granted(1, "a", 1), ended(2, "a", Broken), TokenIssued{"x", 1}}},
		{"join with a new token", 2, []Event{shared(1, "a", 1), shared(2, "b", 2)}},
		{"new period, old token", 2, []Event{shared(1, "a", 1), ended(2, "a", Released), shared(3, "b", 1)}},
		{"floor goes down", 3, []Event{FloorRaised{"x", 5}, FloorRaised{"x", 4}}},
		{"floor lost", 3, []Event{FloorRaised{"x", 5}, FloorRead{"x", 0}}},
		{"write below the floor", 4, []Event{FloorRaised{"x", 5}, WriteAccepted{"x", 4}}},
		{"renewed by another", 5, []Event{granted(1, "a", 1), otherRenew(renewed(2, "a"))}},
		{"released by another", 5, []Event{granted(1, "a", 1), other(ended(2, "a", Released))}},
		{"cancelled by another", 5, []Event{granted(1, "a", 1), other(ended(2, "a", Cancelled))}},
		{"renewed after the end", 5, []Event{granted(1, "a", 1), ended(2, "a", Released), renewed(3, "a")}},
		{"ended twice", 5, []Event{granted(1, "a", 1), ended(2, "a", Released), ended(12, "a", Expired)}},
		{"granted by a minority", 6, []Event{Stored{1, []string{"n1"}}, granted(1, "a", 1)}},
		{"one counted twice", 6, []Event{Stored{1, []string{"n1", "n1"}}, granted(1, "a", 1)}},
		{"renewed by a minority", 6, []Event{Stored{1, []string{"n1", "n2"}}, granted(1, "a", 1), Stored{2, []string{"n2"}}, renewed(2, "a")}},
		{"released by a minority", 6, []Event{Stored{1, []string{"n1", "n2"}}, granted(1, "a", 1), Stored{2, []string{"n2"}}, ended(2, "a", Released)}},
		{"reported by a minority", 6, []Event{Stored{1, []string{"n1", "n2"}}, granted(1, "a", 1), Stored{2, []string{"n2"}}, held("a", 1)}},
		{"queued by nobody", 6, []Event{Stored{1, []string{"n1", "n2"}}, granted(1, "a", 1), Stored{2, nil}, queued(2, "b")}},
		{"token issued by a minority", 6, []Event{Stored{1, []string{"n1"}}, TokenIssued{"x", 1}}},
		{"two effects", 7, []Event{granted(1, "a", 1), ended(2, "a", Released), granted(3, "a", 2)}},
		{"two effects at once", 7, []Event{granted(1, "a", 1), elsewhere(of(granted(2, "b", 2), "a"))}},
		{"queued and held", 7, []Event{granted(1, "a", 1), queued(2, "a")}},
		{"late copy", 7, []Event{granted(1, "a", 1), ended(2, "a", Released), asOf(granted(70, "a", 2), 1)}},
		{"late copy in the window", 7, []Event{asOf(granted(100, "a", 1), 50), ended(102, "a", Released), asOf(granted(161, "a", 2), 101), ended(163, "a", Released), asOf(granted(222, "a", 3), 161)}},
		{"too old", 7, []Event{asOf(granted(62, "a", 1), 1)}},
		{"cancel overtaken and forgotten", 7, []Event{Forestalled{1 * second, request("a"), 1 * second}, granted(2, "a", 1)}},
		{"cancel forgets a live request", 7, []Event{granted(1, "a", 1), Forestalled{2 * second, request("a"), 1 * second}}},
		{"dead lease reported", 7, []Event{granted(1, "a", 1), ended(2, "a", Released), held("a", 1)}},
		{"other token reported", 7, []Event{granted(1, "a", 1), held("a", 2)}},
		{"live lease reported over", 7, []Event{granted(1, "a", 1), Reported{Request: request("a"), State: Over}}},
		{"nobody reported waiting", 7, []Event{Reported{Request: request("a"), State: Waiting}}},
		{"last in, first out", 8, []Event{granted(1, "a", 1), queued(2, "b"), queued(3, "c"), ended(4, "a", Released), granted(4, "c", 2)}},
		{"newcomer first", 8, []Event{granted(1, "a", 1), queued(2, "b"), ended(4, "a", Released), granted(4, "c", 2)}},
		{"shared past exclusive", 8, []Event{shared(1, "a", 1), queued(2, "b"), shared(3, "c", 1)}},
		{"granted while absent", 8, []Event{granted(1, "a", 1), absent(queued(2, "b")), ended(4, "a", Released), granted(4, "b", 2)}},
		{"granted after its time", 8, []Event{granted(1, "a", 1), queued(2, "b"), ended(62, "a", Released), granted(62, "b", 2)}},
		{"granted after leaving", 8, []Event{granted(1, "a", 1), queued(2, "b"), unqueued(3, "b"), unqueued(3, "b")}},
		{"election reverses", 8, []Event{granted(1, "a", 1), queued(2, "b"), queued(3, "c"), Elected{8 * second}, ended(4, "a", Released), Attached{request("c")}, granted(7, "c", 2)}},
		{"expired early", 9, []Event{granted(1, "a", 1), ended(10, "a", Expired)}},
		{"renewal ignored", 9, []Event{granted(1, "a", 1), renewed(5, "a"), ended(11, "a", Expired)}},
		{"expired late", 9, []Event{granted(1, "a", 1), ended(111, "a", Expired)}},
		{"never expired", 9, []Event{granted(1, "a", 1), elsewhere(granted(400, "b", 2))}},
		{"digests differ", 10, []Event{Applied{"n1", 1, [32]byte{1}}, Applied{"n2", 1, [32]byte{2}}}},
		{"never answered", 11, []Event{granted(1, "a", 1), queued(2, "b"), renewed(300, "a")}},
		{"floor by another's token", 12, []Event{elsewhere(granted(1, "a", 5)), FloorRaised{"x", 5}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := run(test.steps)
			var violation *Violation
			if !errors.As(err, &violation) {
				t.Fatalf("got %v, want a violation of invariant %d", err, test.invariant)
			}
			if violation.Invariant != test.invariant {
				t.Errorf("got %v, want invariant %d", err, test.invariant)
			}
		})
	}
}

// run judges a history whose floors are only judged for their source if a grant comes first, and whose quorum, of
// three, only if an entry does.
func run(steps []Event) error {
	o := Options{Window: time.Minute, MaxLate: 99 * time.Second}
	switch steps[0].(type) {
	case Granted:
		o.TokensSeen = true
	case Stored:
		o.Replicas = 3
	}
	c := New(o)
	before := make([]*Checker, len(steps))
	for i, e := range steps {
		before[i], c = c, c.Clone()
		if err := c.Observe(e); err != nil {
			return errors.Join(err, again(before[:i+1], steps, err))
		}
	}
	return errors.Join(c.Finish(c.history.now), again(before, steps, nil))
}

// again judges each step once more by the checker whose clone went on: it must not have noticed.
func again(before []*Checker, steps []Event, last error) error {
	for i, c := range before {
		err := c.Observe(steps[i])
		if i < len(before)-1 && err != nil || i == len(before)-1 && fmt.Sprint(err) != fmt.Sprint(last) {
			return fmt.Errorf("step %d, judged again: %w; it was %w", i, err, last)
		}
	}
	return nil
}

func TestClockError(t *testing.T) {
	c := New(Options{ClockError: 1000})
	for i, at := range []time.Duration{ttl - ttl/1000, ttl - ttl/1000 - time.Microsecond} {
		name := fmt.Sprint(i)
		if err := c.Observe(granted(0, name, lease.Token(i+1))); err != nil {
			t.Fatal(err)
		}
		err := c.Observe(Ended{At: Instant(at), Lease: hash(name), Cause: Expired})
		if early := i == 1; (err != nil) != early {
			t.Errorf("expired after %v: got %v", at, err)
		}
		c.history.now = 0
	}
}

func TestBackInTime(t *testing.T) {
	if err := run([]Event{granted(5, "a", 1), ended(4, "a", Released)}); err == nil {
		t.Error("a history that goes back in time was accepted")
	}
}
