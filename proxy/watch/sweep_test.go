package watch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

func TestResyncComparesWithTheCurrentHolders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, true, nil)
		overtaken, alone := f.bind("overtaken", 41, "l1"), f.bind("ended", 41, "l2")
		live, shared := f.bind("live", 41, "l3"), f.bind("many", 41, "l4")
		hidden, unsigned := f.bind("hidden", 41, "l5"), f.bind("unsigned", 41, "")
		f.from.hold("overtaken", watch.Holder{Token: 42, Lease: "l9"})
		f.from.hold("live", watch.Holder{Token: 41, Lease: "l3"})
		f.from.do(func() {
			f.from.denied = "hidden"
			f.from.held["many"] = watch.Lock{Resource: "many", Holders: []watch.Holder{{Token: 41, Lease: "l8"}}} // of 101
		})
		f.from.resync()
		if got := overtaken.reasons(); len(got) == 0 {
			t.Error("the overtaken one goes on")
		}
		f.wantFloor("overtaken", 42)
		alone.want(t, "its lease ended", gate.LeaseEnded)
		live.want(t, "its lease lives")
		shared.want(t, "not all holders are known")
		hidden.want(t, "what may not be read tells nothing")
		unsigned.want(t, "it has no lease")
		wantReason(t, "comes again", f.gate.Raise(t.Context(), []fencestore.Claim{claim("ended", 41, "l2")}), gate.LeaseEnded)
	})
}

// A binding that is newer than the answer about its resource is not judged by it.
func TestBindingDuringAResync(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, true, nil)
		f.bind("a", 41, "l1")
		f.from.hold("a", watch.Holder{Token: 41, Lease: "l1"})
		var late *session
		f.from.do(func() {
			f.from.onAsk = func(string) { // the answer is on its way already
				if late == nil {
					late = f.bind("a", 41, "l2")
				}
			}
		})
		f.from.resync()
		late.want(t, "bound meanwhile")
	})
}

func TestRecordsGoUpAfterAStart(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, func(_ *watch.Config, f *fixture) {
			for _, resource := range []string{"old", "equal", "newer"} {
				if _, err := f.store.Raise(context.Background(), claim(resource, 41, "")); err != nil {
					t.Fatal(err)
				}
			}
			f.from.hold("old", watch.Holder{Token: 42})
			f.from.hold("equal", watch.Holder{Token: 41})
			f.from.hold("newer", watch.Holder{Token: 40})
			f.from.hold("awaited")
			for i := range 100 {
				f.from.hold(fmt.Sprint("elsewhere", i), watch.Holder{Token: 42})
			}
		})
		f.wantFloor("old", 42)
		f.wantFloor("equal", 41)
		f.wantFloor("newer", 41)
		f.wantFloor("elsewhere7", 0)
		f.seen.want(t, "eager takeovers", &f.seen.eager, 1)
		// What is held elsewhere is known, so an old holder makes no record of his own.
		wantReason(t, "an old holder", f.gate.Raise(t.Context(), []fencestore.Claim{claim("elsewhere99", 41, "")}), gate.StaleToken)
	})
}

func TestRecordsAreAskedForSlowly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := start(t, false, nil)
		for i := range 2_000 {
			f.from.hold(fmt.Sprintf("r%04d", i), watch.Holder{Token: 2})
		}
		before := f.store.floors
		f.from.messages <- watch.Message{Revision: "r", Resync: true}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := f.store.floors - before; n < 400 || n > 501 {
			t.Errorf("%d records asked for in a second", n)
		}
		// What is granted meanwhile does not wait for that.
		old := f.bind("a", 1, "l1")
		f.from.tell(granted("a", 2, "l2"))
		old.want(t, "granted meanwhile", gate.StaleToken)
		// Nor does a loss make it forget what is left.
		f.from.lose <- fmt.Errorf("lost")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := f.store.floors - before; n < 2_000 {
			t.Errorf("%d records asked for in the end", n)
		}
	})
}

// Whatever comes in whatever order: once all has been told, nobody is bound below the newest token, who was overtaken
// has been told, and the newest holders go on.
func TestBindingsComeAndGo(t *testing.T) {
	for seed := range uint64(20) {
		inVirtualTime(t, func(t *testing.T) {
			f := start(t, true, nil)
			chance := rand.New(rand.NewPCG(seed, 1))
			newest := map[string]fencestore.Token{}
			var all []*session
			of := map[*session]fencestore.Claim{}
			for range 300 {
				resource := fmt.Sprint("r", chance.IntN(4))
				switch chance.IntN(5) {
				case 0, 1: // somebody comes with the newest token or an older one
					token := newest[resource] - fencestore.Token(chance.IntN(2))
					if token < 1 || token > newest[resource] {
						continue
					}
					s, c := f.open(f.gate), claim(resource, token, fmt.Sprint(resource, "/", token))
					if err := s.Join(t.Context(), []fencestore.Claim{c}); err == nil {
						all, of[s] = append(all, s), c
					} else if token == newest[resource] {
						t.Fatalf("seed %d: the newest holder of %s was refused: %v", seed, resource, err)
					}
				case 2: // the next one is granted
					newest[resource]++
					lease := fmt.Sprint(resource, "/", newest[resource])
					f.from.hold(resource, watch.Holder{Token: newest[resource], Lease: lease})
					if chance.IntN(4) > 0 { // or the change is missed, until the next resync
						f.from.messages <- watch.Message{Revision: "r", Changes: []watch.Change{granted(resource, newest[resource], lease)}}
					}
				case 3:
					f.from.messages <- watch.Message{Revision: "r", Resync: true}
				case 4:
					if len(all) > 0 {
						i := chance.IntN(len(all))
						all[i].Abandon()
						all = slices.Delete(all, i, i+1)
					}
				}
				if chance.IntN(3) == 0 {
					time.Sleep(time.Duration(chance.IntN(int(time.Second))))
				}
			}
			f.from.resync()
			for _, s := range all {
				c, told := of[s], len(s.reasons()) > 0
				if overtaken := c.Token < newest[c.Resource]; overtaken != told {
					t.Errorf("seed %d: token %d of %s at %d was told %v", seed, c.Token, c.Resource, newest[c.Resource], s.reasons())
				}
			}
		})
	}
}
