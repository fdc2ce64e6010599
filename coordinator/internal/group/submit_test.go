package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// told records what a submission is told.
type told chan answered

type answered struct {
	outcome Outcome
	err     error
}

func (t told) Answered(outcome Outcome, err error) { t <- answered{outcome, err} }

// Each submission is told the result of its own command, and commands of one client take effect in their order.
func TestSubmissionsAreToldTheirOwnResults(t *testing.T) {
	c := startReal(t)
	defer c.stop()
	g := c.leader()
	const n = 300
	callers := make([]told, n)
	var all []*Submission
	for i := range n {
		callers[i] = make(told, 2) // one too many would fit
		acquire := testAcquire("c", fmt.Sprintf("q%d", i), fmt.Sprintf("r/%d", i), 0)
		acquire.Lease = lease.NewID(0, [14]byte{byte(i >> 8), byte(i), 1})
		all = append(all, &Submission{Command: acquire, Caller: callers[i]})
	}
	g.Submit(all...)
	var tokens []lease.Token
	for i, caller := range callers {
		got := <-caller
		granted, ok := got.outcome.Result.(lock.Granted)
		if got.err != nil || !ok || granted.Resource != lease.Resource(fmt.Sprintf("r/%d", i)) || got.outcome.Index == 0 {
			t.Fatalf("submission %d: got %+v, %v", i, got.outcome, got.err)
		}
		tokens = append(tokens, granted.Token)
		if len(caller) > 0 {
			t.Errorf("submission %d was told twice", i)
		}
	}
	if !slices.IsSorted(tokens) {
		t.Errorf("the tokens are not in the order of the submissions: %v", tokens)
	}
}

// A node that does not lead says so at once, and a full queue says which do not fit.
func TestRefusedSubmissions(t *testing.T) {
	members := testMembers(t, 3)
	g, err := New(nodeSpec{Node: members[0].ID, Dir: t.TempDir(), Members: members}.config())
	if err != nil {
		t.Fatal(err)
	}
	submit := func(n int) (callers []told) {
		var all []*Submission
		for i := range n {
			caller := make(told, 2)
			callers = append(callers, caller)
			all = append(all, &Submission{Command: testAcquire("c", fmt.Sprint(i), "r", 0), Caller: caller})
		}
		g.Submit(all...)
		return callers
	}
	kind := func(caller told) Kind {
		select {
		case got := <-caller:
			e, ok := errors.AsType[*Error](got.err)
			if !ok {
				t.Fatalf("got %+v, %v", got.outcome, got.err)
			}
			return e.Kind
		default:
			return 0
		}
	}
	if got := kind(submit(1)[0]); got != NotLeader {
		t.Errorf("on a node that does not lead: got %v", got)
	}
	g.queue.open()
	fit := g.config.Limits.Queue / 2 // acquires fill half of it
	callers := submit(fit + 2)
	for i, want := range map[int]Kind{0: 0, fit - 1: 0, fit: Overloaded, fit + 1: Overloaded} {
		if got := kind(callers[i]); got != want {
			t.Errorf("submission %d: got %v, want %v", i, got, want)
		}
	}
	g.refuseAll()
	if got := kind(callers[0]); got != Stopping {
		t.Errorf("a queued one when the node stops: got %v", got)
	}
}

// What was withdrawn is never told anything.
func TestWithdrawnSubmission(t *testing.T) {
	members := testMembers(t, 3)
	g, err := New(nodeSpec{Node: members[0].ID, Dir: t.TempDir(), Members: members}.config())
	if err != nil {
		t.Fatal(err)
	}
	g.queue.open()
	s := &Submission{Command: testAcquire("c", "q", "r", 0), Caller: make(told, 1)}
	g.Submit(s)
	if !g.Withdraw(s) || g.Withdraw(s) {
		t.Error("want it withdrawn once")
	}
	g.refuseAll()
	if len(s.Caller.(told)) != 0 || g.queue.length() != 0 {
		t.Error("it was told something after it was withdrawn")
	}
}
