package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

func TestGrantEndsOlderBindingsBeforeItsHolderComes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		old, other, same := f.bind("a", 41, "l1"), f.bind("b", 41, "l1"), f.bind("c", 42, "l3")
		f.from.tell(granted("a", 42, "l2"), granted("c", 42, "l3"))
		old.want(t, "overtaken", gate.StaleToken)
		other.want(t, "another resource")
		same.want(t, "the same token")
		f.wantFloor("a", 42)
		f.seen.want(t, "eager takeovers", &f.seen.eager, 1)
		f.seen.want(t, "refusals of clients", &f.seen.refused, 0)
		if log := f.log.String(); strings.Contains(log, "level=WARN") {
			t.Errorf("warned:\n%s", log)
		}
		// The new holder comes: no second takeover.
		before := f.seen.count(&f.seen.taken)
		f.bind("a", 42, "l2")
		f.seen.want(t, "takeovers by contact", &f.seen.taken, before)
	})
}

func TestGrantWithoutBindingsMakesNoRecord(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		f.from.tell(granted("a", 42, "l2"))
		f.wantFloor("a", 0)
		// An old holder who comes now is refused all the same, and writes nothing.
		wantReason(t, "admit", f.gate.Raise(t.Context(), []fencestore.Claim{claim("a", 41, "l1")}), gate.StaleToken)
		f.wantFloor("a", 42)
	})
}

// A holder who was let in and has not bound yet when the newer token is granted.
func TestGrantBetweenRaiseAndJoin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		if err := f.gate.Raise(t.Context(), []fencestore.Claim{claim("a", 41, "l1")}); err != nil {
			t.Fatal(err)
		}
		f.from.tell(granted("a", 42, "l2"))
		wantReason(t, "join", f.open(f.gate).Join(t.Context(), []fencestore.Claim{claim("a", 41, "l1")}), gate.StaleToken)
	})
}

func TestNewHolderBindsThroughAnotherProxyMeanwhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		other := f.newGate(false, nil)
		for token := fencestore.Token(2); token < 50; token++ {
			old := f.bind("a", token-1, fmt.Sprint(token-1))
			before := f.seen.count(&f.seen.taken)
			successor := f.open(other)
			joined := make(chan error)
			go func() {
				joined <- successor.Join(context.Background(), []fencestore.Claim{claim("a", token, fmt.Sprint(token))})
			}()
			f.from.tell(granted("a", token, fmt.Sprint(token)))
			if err := <-joined; err != nil {
				t.Errorf("the new holder was refused: %v", err)
			}
			f.seen.want(t, "takeovers by both", &f.seen.taken, before+1)
			if len(old.reasons()) > 1 {
				t.Errorf("told %v", old.reasons())
			}
			f.wantFloor("a", token)
			old.Abandon()
			successor.Abandon()
		}
	})
}

func TestChangeThatIsOlderThanTheFloor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		now := f.bind("a", 50, "l50")
		f.from.tell(granted("a", 42, "l42"), broken("a", 43, "l42"), granted("a", 42, "l42"))
		now.want(t, "the newest")
		f.wantFloor("a", 50)
		f.seen.want(t, "eager takeovers", &f.seen.eager, 0)
	})
}

func TestBreakFences(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		bound := f.bind("bound", 41, "l1")
		recorded := f.bind("recorded", 41, "l2")
		recorded.Abandon()
		f.from.tell(broken("bound", 42, "l1"), broken("recorded", 42, "l2"), broken("unknown", 42, ""))
		bound.want(t, "bound", gate.StaleToken)
		f.wantFloor("bound", 42)
		f.wantFloor("recorded", 42)
		f.wantFloor("unknown", 0)
		// A cluster that was restored ends leases without issuing a token.
		kept := f.bind("restored", 41, "l3")
		f.from.tell(broken("restored", 0, "l3"))
		kept.want(t, "restored")
	})
}

func TestLeaseEndCutsItsOwnBindingsOnly(t *testing.T) {
	for _, how := range []func(string, fencestore.Token, string) watch.Change{ended, broken} {
		inVirtualTime(t, func(t *testing.T) {
			f := start(t, true, nil)
			one, two, again := f.bind("a", 41, "l1"), f.bind("a", 41, "l2"), f.bind("a", 41, "l1")
			change := how("a", 41, "l1")
			f.from.tell(change)
			one.want(t, "its lease ended", gate.LeaseEnded)
			again.want(t, "its second connection", gate.LeaseEnded)
			two.want(t, "another holder of the token")
			f.seen.want(t, "cuts", &f.seen.cut, 2)
			// It does not come in again by its ticket; the other holder does.
			wantReason(t, "admit", f.gate.Raise(t.Context(), []fencestore.Claim{claim("a", 41, "l1")}), gate.LeaseEnded)
			wantReason(t, "join", f.open(f.gate).Join(t.Context(), []fencestore.Claim{claim("a", 41, "l1")}), gate.LeaseEnded)
			f.bind("a", 41, "l2")
		})
	}
}

func TestLeaseEndKeepsBindingsByDefault(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		one := f.bind("a", 41, "l1")
		f.from.tell(ended("a", 41, "l1"))
		f.from.resync()
		one.want(t, "its lease ended")
		f.seen.want(t, "cuts", &f.seen.cut, 0)
		f.bind("a", 41, "l1")
	})
}

// One floor that cannot be raised keeps no other from going up, and what comes for it meanwhile does not pile up.
func TestRaiseThatHangs(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		old, other := f.bind("stuck", 1, "l1"), f.bind("free", 1, "l1")
		f.store.do(func() { f.store.hangs["stuck"] = true })
		before := f.store.raises
		for token := fencestore.Token(2); token <= 1000; token++ {
			f.from.tell(granted("stuck", token, ""))
		}
		f.from.tell(granted("stuck", 500, "")) // told late
		f.seen.want(t, "waiting", &f.seen.waiting, 1)
		f.from.tell(granted("free", 2, "l2"))
		other.want(t, "beside one that hangs", gate.StaleToken)
		if n := f.store.raises - before; n > 4 {
			t.Errorf("%d raises for two resources", n)
		}
		f.store.do(func() { f.store.hangs["stuck"] = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		f.wantFloor("stuck", 1000)
		old.want(t, "after it hung", gate.StaleToken)
		f.seen.want(t, "waiting", &f.seen.waiting, 0)
	})
}

func TestStoreThatIsDownIsAskedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		old, gone := f.bind("a", 1, "l1"), f.bind("b", 1, "l1")
		f.store.do(func() { f.store.fails = &fencestore.Refusal{Reason: fencestore.NotReady} })
		f.from.tell(granted("a", 2, "l2"), granted("b", 2, "l2"))
		gone.Abandon() // nothing is left to be raised for
		time.Sleep(10 * time.Second)
		synctest.Wait()
		f.seen.want(t, "waiting", &f.seen.waiting, 1)
		f.store.do(func() { f.store.fails = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		f.wantFloor("a", 2)
		f.wantFloor("b", 1)
		old.want(t, "after the store came back", gate.StaleToken)
		if n := strings.Count(f.log.String(), "floor not raised yet"); n < 1 || n > 2 {
			t.Errorf("warned %d times", n)
		}
	})
}

func TestQueueThatIsFullIsLookedUpLater(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, func(c *watch.Config, _ *fixture) { c.MaxQueue = 2 })
		var old []*session
		f.store.do(func() { f.store.fails = errors.New("down") })
		var changes []watch.Change
		for i := range 20 {
			resource := fmt.Sprint("r", i)
			f.store.do(func() { f.store.fails = nil })
			old = append(old, f.bind(resource, 1, "l1"))
			f.from.hold(resource, watch.Holder{Token: 2, Lease: "l2"})
			changes = append(changes, granted(resource, 2, "l2"))
		}
		f.store.do(func() { f.store.fails = errors.New("down") })
		f.from.tell(changes...)
		if n := f.seen.count(&f.seen.waiting); n > 2 {
			t.Errorf("%d waiting", n)
		}
		f.store.do(func() { f.store.fails = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, s := range old {
			s.want(t, "in the end", gate.StaleToken)
		}
	})
}

// While no coordinator is there everything goes on; the watch goes on from where it was, and only looks up what it missed.
func TestCoordinatorLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, true, nil)
		old := f.bind("a", 1, "l1")
		f.from.hold("a", watch.Holder{Token: 1, Lease: "l1"})
		f.from.tell(granted("a", 1, "l1"))
		if err := f.watch.Problem(); err != nil {
			t.Errorf("connected, and %v", err)
		}
		lost := errors.New("lost")
		f.from.do(func() { f.from.down = lost })
		f.from.lose <- lost
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := f.watch.Problem(); !errors.Is(err, lost) {
			t.Errorf("lost, and %v", err)
		}
		f.bind("b", 1, "l2")
		old.want(t, "without a coordinator")
		resyncs := f.seen.count(&f.seen.resyncs)

		f.from.do(func() { f.from.down = nil })
		f.from.tell(granted("a", 2, "l3"))
		old.want(t, "afterwards", gate.StaleToken)
		f.seen.want(t, "resyncs of a watch that goes on", &f.seen.resyncs, resyncs)
		if want := []string{"", "r2"}; !slices.Equal(f.from.began, want) {
			t.Errorf("began from %q, want %q", f.from.began, want)
		}
		f.from.lose <- fmt.Errorf("of no use: %w", watch.ErrRevision)
		time.Sleep(time.Minute)
		synctest.Wait()
		f.seen.want(t, "resyncs after a revision that was of no use", &f.seen.resyncs, resyncs+1)
		if n := strings.Count(f.log.String(), "is not watched"); n != 2 {
			t.Errorf("said %d times that it does not watch", n)
		}
	})
}

func TestNothingIsWatchedBeforeTheClusterIsKnown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		name := make(chan string, 1)
		f := start(t, false, func(c *watch.Config, _ *fixture) {
			known := ""
			c.Cluster = func() string {
				select {
				case known = <-name:
				default:
				}
				return known
			}
		})
		if len(f.from.began) != 0 || f.watch.Problem() == nil {
			t.Errorf("watched %q", f.from.began)
		}
		name <- cluster
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if err := f.watch.Problem(); err != nil {
			t.Error(err)
		}
	})
}

// The floor that goes up is not the newest any more: it goes up again, at once.
func TestNewerTokenWhileARaiseRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		f.bind("a", 1, "l1")
		f.store.do(func() { f.store.slow = time.Second })
		f.from.tell(granted("a", 2, "l2"))
		between := f.bind("a", 2, "l2") // waits until the store has answered
		f.from.tell(granted("a", 3, "l3"))
		f.from.tell(granted("a", 4, "l4"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		f.wantFloor("a", 4)
		between.want(t, "between", gate.StaleToken)
	})
}

func TestKnownForgetsTheOldest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		known := watch.NewKnown(10, func() string { return cluster })
		f := start(t, false, func(c *watch.Config, _ *fixture) { c.Known = known })
		f.from.tell(granted("first", 1, "l"), ended("first", 1, "l"))
		if known.Newest(cluster, "first") != 1 || !known.Ended("l") {
			t.Error("it does not know what was told")
		}
		if known.Newest("another", "first") != 0 {
			t.Error("it tells of another cluster")
		}
		for i := range 9 {
			f.from.tell(granted(fmt.Sprint("r", i), 5, ""), granted(fmt.Sprint("r", i), 4, ""))
		}
		if known.Newest(cluster, "first") != 1 || known.Newest(cluster, "r0") != 5 {
			t.Error("it has forgotten one of ten, or the newest token")
		}
		for i := range 20 {
			f.from.tell(granted(fmt.Sprint("s", i), 5, fmt.Sprint(i)), ended(fmt.Sprint("s", i), 5, fmt.Sprint(i)))
		}
		if known.Newest(cluster, "first") != 0 || known.Ended("l") {
			t.Error("it forgets nothing")
		}
	})
}
