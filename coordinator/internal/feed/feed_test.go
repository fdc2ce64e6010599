package feed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func granted(resource lease.Resource, token lease.Token) lock.Event {
	return lock.LeaseGranted{Grant: lock.Grant{Resource: resource, Token: token, Client: "c", Identity: "i"}}
}

func ended(resource lease.Resource, token lease.Token, cause lock.EndCause) lock.Event {
	return lock.LeaseEnded{Holder: lock.Holder{Resource: resource, Token: token, Client: "c"}, Cause: cause}
}

func broken(resource lease.Resource, token lease.Token) lock.Event {
	return lock.ResourceBroken{Resource: resource, Token: token}
}

// said is a change in short.
func said(c Change) string {
	kind := map[Kind]string{Granted: "granted", Released: "released", Expired: "expired", Broken: "broken"}[c.Kind]
	return fmt.Sprintf("%s %s %d (%s) at %d:%d", kind, c.Holder.Resource, c.Token, c.Holder.Client, c.Group, c.Index)
}

func allSaid(changes []Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, said(c))
	}
	return strings.Join(lines, "\n")
}

func watch(t testing.TB, f *Feed, prefix string, from ...Position) *Watcher {
	t.Helper()
	w, err := f.Watch(prefix, nil, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestWhatBecomesAChange(t *testing.T) {
	f := New(Config{})
	w := watch(t, f, "r", Position{})
	f.Applied(0, 1, 1, []lock.Event{granted("r/1", 1), granted("other", 2)})
	f.Applied(0, 2, 2, []lock.Event{lock.WaitStarted{Resource: "r/1"}})
	f.Applied(0, 3, 3, []lock.Event{
		ended("r/1", 1, lock.EndBroken), ended("r/1", 1, lock.EndBroken), broken("r/1", 3), granted("r/1", 4),
		broken("r/free", 5),
		ended("r/2", 2, lock.EndExpired), ended("r/3", 2, lock.EndUnclaimed),
		ended("r/4", 2, lock.EndCancelled), ended("r/5", 2, lock.EndReleased),
	})
	want := `granted r/1 1 (c) at 0:1
broken r/1 3 (c) at 0:3
broken r/1 3 (c) at 0:3
granted r/1 4 (c) at 0:3
broken r/free 5 () at 0:3
expired r/2 2 (c) at 0:3
expired r/3 2 (c) at 0:3
released r/4 2 (c) at 0:3
released r/5 2 (c) at 0:3`
	if got := allSaid(w.Read(100, 1<<20).Changes); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if at := w.At()[0]; at != After(3) {
		t.Errorf("read up to %v", at)
	}
}

func TestWhatIsNotShown(t *testing.T) {
	f := New(Config{})
	w, err := f.Watch("r/", func(name lease.Resource) bool { return name != "r/2" }, []Position{{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Applied(0, 1, 1, []lock.Event{granted("r/1", 1), granted("r/2", 2), granted("r/3", 3)})
	if got := allSaid(w.Read(10, 1<<20).Changes); got != "granted r/1 1 (c) at 0:1\ngranted r/3 3 (c) at 0:1" {
		t.Errorf("got\n%s", got)
	}
}

// A page may end within an entry; going on from there, on another node too, misses nothing and repeats nothing.
func TestAnEntryInParts(t *testing.T) {
	one, other := New(Config{}), New(Config{})
	for _, f := range []*Feed{one, other} {
		f.Applied(0, 7, 1, []lock.Event{granted("a", 1), granted("b", 2), granted("c", 3)})
		f.Applied(0, 8, 1, []lock.Event{granted("d", 4)})
	}
	var got []Change
	at := []Position{{}}
	for i := range 4 {
		w := watch(t, []*Feed{one, other}[i%2], "", at...)
		b := w.Read(1, 1<<20)
		if b.Missed || len(b.Changes) != 1 || b.More != (i < 3) {
			t.Fatalf("read %d: %v", i, b)
		}
		got, at = append(got, b.Changes...), w.At()
	}
	if tokens := fmt.Sprint(got[0].Token, got[1].Token, got[2].Token, got[3].Token); tokens != "1 2 3 4" {
		t.Errorf("tokens %s", tokens)
	}
}

func TestWhoComesTooLateIsTold(t *testing.T) {
	f := New(Config{Entries: 4})
	slow := watch(t, f, "r", Position{})
	for i := range uint64(10) {
		f.Applied(0, i+1, 1, []lock.Event{granted("other", lease.Token(i+1))})
	}
	if b := slow.Read(100, 1<<20); !b.Missed || len(b.Changes) != 0 {
		t.Fatalf("after the ring went round: %v", b)
	}
	if at := slow.At()[0]; at != After(10) {
		t.Errorf("goes on from %v", at)
	}
	if b := watch(t, f, "", After(6)).Read(100, 1<<20); b.Missed || len(b.Changes) != 4 {
		t.Errorf("from the oldest place that is kept: %v", b)
	}
	if b := watch(t, f, "", After(5)).Read(100, 1<<20); !b.Missed {
		t.Errorf("from a place before it: %v", b)
	}
	f.Applied(0, 11, 1, []lock.Event{granted("r", 11)})
	if b := slow.Read(100, 1<<20); b.Missed || len(b.Changes) != 1 {
		t.Errorf("after it was told: %v", b)
	}
}

func TestBytesAreBounded(t *testing.T) {
	f := New(Config{Bytes: 10 * changeBytes})
	w := watch(t, f, "", Position{})
	for i := range uint64(100) {
		f.Applied(0, i+1, 1, []lock.Event{granted(lease.Resource(strings.Repeat("x", int(i))), 1)})
	}
	if r := f.rings[0]; r.bytes > 10*changeBytes || r.count == 0 {
		t.Errorf("%d changes of %d bytes", r.count, r.bytes)
	}
	if !w.Read(10, 1<<20).Missed {
		t.Error("what was dropped was not told")
	}
}

// A snapshot replaces the state: what led to it is unknown. Who has seen more than the snapshot misses nothing.
func TestAStateThatWasReplaced(t *testing.T) {
	f := New(Config{})
	behind, ahead := watch(t, f, "", After(10)), watch(t, f, "", After(60))
	f.Restored(0, 50)
	for i := uint64(51); i <= 61; i++ {
		f.Applied(0, i, 1, []lock.Event{granted("r", lease.Token(i))})
	}
	if !behind.Read(100, 1<<20).Missed {
		t.Error("the one that was behind is not told")
	}
	if b := ahead.Read(100, 1<<20); b.Missed || allSaid(b.Changes) != "granted r 61 (c) at 0:61" {
		t.Errorf("the one that was ahead reads %v", b)
	}
}

// Another life of the cluster is no continuation of the one before.
func TestAnotherLifeOfTheCluster(t *testing.T) {
	f := New(Config{})
	w := watch(t, f, "", Position{})
	f.Applied(0, 1, 1, []lock.Event{granted("r", 1)})
	f.Applied(0, 2, 1, []lock.Event{ended("r", 1, lock.EndRecovered), lock.Recovered{Incarnation: 1}})
	f.Applied(0, 3, 1, []lock.Event{granted("r", 2)})
	if b := w.Read(10, 1<<20); !b.Missed {
		t.Errorf("read on as if nothing had been: %v", b)
	}
	w.Reset()
	if at := w.At()[0]; at != After(3) {
		t.Errorf("goes on from %v", at)
	}
}

func TestAPlaceAheadIsWaitedFor(t *testing.T) {
	f := New(Config{})
	w := watch(t, f, "", After(5))
	for i := uint64(1); i <= 5; i++ {
		f.Applied(0, i, 1, []lock.Event{granted("r", lease.Token(i))})
		if b := w.Read(10, 1<<20); len(b.Changes) != 0 || w.At()[0] != After(5) {
			t.Fatalf("at %d: %v, at %v", i, b, w.At())
		}
	}
}

func TestWatchersAreBounded(t *testing.T) {
	f := New(Config{Watchers: 1})
	first := watch(t, f, "", Position{})
	if _, err := f.Watch("", nil, []Position{{}}); err != ErrTooMany { //nolint:errorlint // as it is returned
		t.Errorf("got %v", err)
	}
	first.Close()
	first.Close()
	watch(t, f, "", Position{})
	if f.Watchers() != 1 {
		t.Errorf("%d watchers", f.Watchers())
	}
}

// The first news goes out at once, what follows soon in one go.
func TestWatchersAreWokenAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		w := watch(t, f, "", Position{})
		woken := func() time.Duration {
			began := time.Now()
			<-w.Changed()
			return time.Since(began)
		}
		news, began := w.Changed(), time.Now()
		f.Applied(0, 1, 1, []lock.Event{granted("r", 1)})
		<-news
		if took := time.Since(began); took != 0 {
			t.Errorf("the first news went out after %v", took)
		}
		f.Applied(0, 2, 1, []lock.Event{granted("r", 2)})
		f.Applied(0, 3, 1, []lock.Event{granted("r", 3)})
		if got := woken(); got != pace+pacePerWatcher {
			t.Errorf("the second news went out after %v", got)
		}
		cancel()
		<-done
	})
}

// Whatever happens and however watchers read, each of them gets exactly what has its prefix, in order, or is told.
func TestRandomReaders(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const groups = 2
		f := New(Config{Groups: groups, Entries: rapid.IntRange(1, 20).Draw(rt, "entries")})
		type follower struct {
			w      *Watcher
			prefix string
			due    [groups][]Change // not read yet
		}
		var all [groups][]Change
		var index [groups]uint64
		followers := map[int]*follower{}
		read := func(w *follower, most int) {
			b := w.w.Read(most, 1<<20)
			if b.Missed {
				w.due = [groups][]Change{} // whatever it was
				return
			}
			for _, c := range b.Changes {
				due := w.due[c.Group]
				if len(due) == 0 || said(due[0]) != said(c) {
					rt.Fatalf("got %s, due %s", said(c), allSaid(due))
				}
				w.due[c.Group] = due[1:]
			}
			if !b.More && len(w.due[0])+len(w.due[1]) > 0 {
				rt.Fatalf("there is more than it was given: %s", allSaid(append(w.due[0], w.due[1]...)))
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"apply": func(rt *rapid.T) {
				g := rapid.IntRange(0, groups-1).Draw(rt, "group")
				var events []lock.Event
				for range rapid.IntRange(0, 4).Draw(rt, "events") {
					name := rapid.SampledFrom([]lease.Resource{"a/1", "a/2", "b/1"}).Draw(rt, "name")
					events = append(events, granted(name, lease.Token(len(all[g])+len(events)+1)))
				}
				index[g]++
				f.Applied(uint16(g), index[g], 1, events)
				for _, k := range changesOf(nil, events) {
					k.index = index[g]
					c := k.change(uint16(g))
					all[g] = append(all[g], c)
					for _, w := range followers {
						if strings.HasPrefix(string(c.Holder.Resource), w.prefix) {
							w.due[g] = append(w.due[g], c)
						}
					}
				}
			},
			"watch": func(rt *rapid.T) {
				prefix := rapid.SampledFrom([]string{"", "a/", "b/1", "c"}).Draw(rt, "prefix")
				w, err := f.Watch(prefix, nil, f.End())
				if err != nil {
					rt.Fatal(err)
				}
				followers[len(followers)] = &follower{w: w, prefix: prefix}
			},
			"read": func(rt *rapid.T) {
				if len(followers) == 0 {
					return
				}
				read(followers[rapid.IntRange(0, len(followers)-1).Draw(rt, "who")], rapid.IntRange(1, 5).Draw(rt, "most"))
			},
			"": func(rt *rapid.T) {
				for _, r := range f.rings {
					if r.count > r.maxEntries {
						rt.Fatalf("%d changes are kept", r.count)
					}
				}
			},
		})
	})
}

func BenchmarkApplied(b *testing.B) {
	f := New(Config{})
	events := make([]lock.Event, 0, 100)
	for i := range 50 {
		name := lease.Resource(fmt.Sprintf("bench/%d", i))
		events = append(events, granted(name, 1), ended(name, 1, lock.EndReleased))
	}
	b.ReportAllocs()
	for i := range b.N {
		f.Applied(0, uint64(i), 1, events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/change")
}
