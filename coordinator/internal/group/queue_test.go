package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func newTestQueue(limit int) *queue {
	q := newQueue(Limits{Queue: limit, Reads: 2, BatchBytes: 1 << 20})
	q.open()
	return q
}

func pushed(t *testing.T, q *queue, cmd lock.Command) *proposal {
	t.Helper()
	p := newProposal(cmd, leaseOfClient{})
	if refusal := q.push(p); refusal != nil {
		t.Fatalf("push: %v", refusal)
	}
	return p
}

// leaseOfClient finds the lease {n, d} of client "n", with the deadline d.
type leaseOfClient struct{}

func (leaseOfClient) Holder(id lease.ID) (lease.ClientID, bool) {
	return lease.ClientID(fmt.Sprint(id[0])), true
}

func (leaseOfClient) Deadline(id lease.ID) (lock.LeaseTime, bool) { return lock.LeaseTime(id[1]), true }

func renewal(n byte) lock.Renew     { return lock.Renew{Identity: "t", Lease: lease.ID{n}} }
func releaseOf(n byte) lock.Release { return lock.Release{Identity: "t", Lease: lease.ID{n}} }
func acquireBy(client string) lock.Acquire {
	return lock.Acquire{Identity: "t", Client: lease.ClientID(client), Request: "r", Resource: "x"}
}

func kinds(proposals []*proposal) string {
	s := ""
	for _, p := range proposals {
		s += map[class]string{renewing: "R", ending: "E", acquiring: "A"}[classOf(p.cmd)]
	}
	return s
}

func TestQueueChoosesRenewalsFirstAndEveryClassHasAShare(t *testing.T) {
	q := newTestQueue(1000)
	for i := range 20 {
		pushed(t, q, acquireBy(fmt.Sprintf("c%d", i)))
		pushed(t, q, releaseOf(byte(100+i)))
		pushed(t, q, renewal(byte(i)))
	}
	for _, want := range []string{"RRRREEAA", "RRRREEAA", "RRRREEAA", "RRRREEAA", "RRRREEAA", "EEEEEEAA", "EEEEAAAA", "AAAA"} {
		got, _ := q.take(8, 1<<20)
		if kinds(got) != want {
			t.Errorf("an entry of eight takes %s, want %s", kinds(got), want)
		}
	}
	if n := q.length(); n != 0 {
		t.Errorf("%d commands are left", n)
	}
}

func TestQueueUnusedSharesGoToOthers(t *testing.T) {
	q := newTestQueue(1000)
	for i := range 20 {
		pushed(t, q, acquireBy(fmt.Sprintf("c%d", i)))
	}
	if got, _ := q.take(8, 1<<20); kinds(got) != "AAAAAAAA" {
		t.Errorf("acquires alone fill the entry with %s", kinds(got))
	}
	// A budget of bytes binds like one of commands, and what is there is never stuck.
	if got, _ := q.take(8, 4*sizeOf(acquireBy("c1"))); len(got) == 0 || len(got) > 4 {
		t.Errorf("a budget for four commands takes %d", len(got))
	}
}

func TestQueueKeepsTheOrderOfOneClient(t *testing.T) {
	q := newTestQueue(1000)
	for i := range 30 {
		pushed(t, q, releaseOf(byte(100+i)))
		pushed(t, q, acquireBy(fmt.Sprintf("other%d", i)))
	}
	// Lease 7 is held by client "7": its acquire must not overtake its release, nor the release the acquire.
	mine := []*proposal{
		pushed(t, q, acquireBy("7")),
		pushed(t, q, releaseOf(7)),
		pushed(t, q, lock.Cancel{Identity: "t", Client: "7", Request: "r"}),
		pushed(t, q, acquireBy("7")),
	}
	var order []*proposal
	for q.length() > 0 {
		got, _ := q.take(4, 1<<20)
		order = append(order, got...)
	}
	next := 0
	for _, p := range order {
		if next < len(mine) && p == mine[next] {
			next++
		}
	}
	if next != len(mine) {
		t.Errorf("only the first %d of the client's commands are in order", next)
	}
	if len(q.clients) != 0 {
		t.Errorf("%d clients are remembered by an empty queue", len(q.clients))
	}
}

func TestQueueRenewsTheLeaseNearestItsEndFirst(t *testing.T) {
	q := newTestQueue(1000)
	renew := func(n, deadline byte) *proposal {
		return pushed(t, q, lock.Renew{Identity: "t", Lease: lease.ID{n, deadline}})
	}
	late, soon, next, same, gone := renew(1, 50), renew(2, 10), renew(3, 20), renew(4, 10), renew(5, 5)
	if !q.withdraw(gone) {
		t.Error("a renewal cannot be withdrawn")
	}
	for i, want := range []*proposal{soon, same, next, late} {
		got, _ := q.take(4, 2*sizeOf(soon.cmd)-1) // room for one
		if len(got) != 1 || got[0] != want {
			t.Errorf("renewal %d is not the one nearest its end", i)
		}
	}
}

// However large a command is, it gets its turn under uninterrupted load of another class.
func TestQueueTakesALargeCommand(t *testing.T) {
	q := newTestQueue(1000)
	q.maxSize = 1000 / 4
	large := acquireBy(strings.Repeat("x", 5000))
	p := pushed(t, q, large)
	for i := range 20 {
		pushed(t, q, renewal(byte(i)))
	}
	if got, _ := q.take(100, 1000); !slices.Contains(got, p) {
		t.Error("a command larger than an entry is not taken")
	}
}

func TestQueueRefusesRenewalsLast(t *testing.T) {
	q := newTestQueue(100)
	accepted := func(cmd func(int) lock.Command) int {
		n := 0
		for ; n < 200; n++ {
			if refusal := q.push(&proposal{cmd: cmd(n), done: make(chan answer, 1)}); refusal != nil {
				if refusal.Kind != Overloaded || refusal.RetryAfter <= 0 || refusal.MaybeApplied() {
					t.Errorf("a full queue refuses with %+v", refusal)
				}
				break
			}
		}
		return n
	}
	acquires := accepted(func(i int) lock.Command { return acquireBy(fmt.Sprint(i)) })
	ends := accepted(func(i int) lock.Command { return releaseOf(byte(i)) })
	renewals := accepted(func(i int) lock.Command { return renewal(byte(i)) })
	if acquires != 50 || ends != 25 || renewals != 25 {
		t.Errorf("a queue of 100 takes %d acquires, then %d releases, then %d renewals; want 50, 25, 25", acquires, ends, renewals)
	}
}

func TestQueueWithdraw(t *testing.T) {
	q := newTestQueue(100)
	first, second := pushed(t, q, acquireBy("1")), pushed(t, q, acquireBy("2"))
	if !q.withdraw(first) {
		t.Error("a queued command cannot be withdrawn")
	}
	if q.withdraw(first) {
		t.Error("a command is withdrawn twice")
	}
	got, _ := q.take(8, 1<<20)
	if len(got) != 1 || got[0] != second {
		t.Errorf("the entry has %d commands, want the one that was left", len(got))
	}
	if q.withdraw(second) {
		t.Error("a command in an entry is withdrawn")
	}
}

func TestQueueReadsRideAlong(t *testing.T) {
	q := newTestQueue(100)
	reads := []*reading{{done: make(chan answer, 1)}, {done: make(chan answer, 1)}, {done: make(chan answer, 1)}}
	for i, r := range reads {
		refusal := q.pushRead(r)
		if (refusal != nil) != (i == 2) {
			t.Errorf("read %d of at most two: %v", i, refusal)
		}
	}
	q.withdrawRead(reads[0])
	_, got := q.take(8, 1<<20)
	if len(got) != 1 || got[0] != reads[1] {
		t.Errorf("%d reads ride along, want the one that was not withdrawn", len(got))
	}
}

func TestQueueCloseAnswersEverybody(t *testing.T) {
	q := newTestQueue(100)
	p := pushed(t, q, acquireBy("1"))
	r := &reading{done: make(chan answer, 1)}
	if refusal := q.pushRead(r); refusal != nil {
		t.Fatal(refusal)
	}
	reason := &Error{Kind: Stopping}
	q.close(reason)
	if a := <-p.done; a.err != reason {
		t.Errorf("a queued command ends with %v", a.err)
	}
	if a := <-r.done; a.err != reason {
		t.Errorf("a waiting read ends with %v", a.err)
	}
	if refusal := q.push(&proposal{cmd: renewal(1), done: make(chan answer, 1)}); refusal != reason {
		t.Errorf("a closed queue answers %v", refusal)
	}
	if got, _ := q.take(8, 1<<20); len(got) != 0 {
		t.Errorf("a closed queue still holds %d commands", len(got))
	}
}
