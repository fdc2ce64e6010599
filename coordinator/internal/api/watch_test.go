package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// watched is a watch that is read in the background.
type watched struct {
	t    *testing.T
	quit context.CancelFunc
	done chan struct{} // closed at its end

	mu       sync.Mutex
	changes  []*lockpb.Change
	messages int
	resyncs  int
	revision string
	err      error
}

func (c *cluster) watch(n *node, prefix, revision string) *watched {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.context())
	c.t.Cleanup(cancel)
	stream, err := n.locks.Watch(ctx, &lockpb.WatchRequest{Prefix: prefix, Revision: revision})
	check(c.t, err)
	w := &watched{t: c.t, quit: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			m, err := stream.Recv()
			if err != nil {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
				return
			}
			w.take(m)
		}
	}()
	c.until("the watch has begun", func() bool { return w.at() != "" || w.ended() != nil })
	return w
}

func (w *watched) take(m *lockpb.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, m.GetChanges()...)
	w.revision = m.GetRevision()
	w.messages++
	if m.GetResync() {
		w.resyncs++
	}
}

func (w *watched) at() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

func (w *watched) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *watched) count() (changes, messages, resyncs int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.changes), w.messages, w.resyncs
}

func (w *watched) all() []*lockpb.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes)
}

// said is what a watch has told so far, a change a line.
func (w *watched) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return saidAll(w.changes)
}

func saidAll(changes []*lockpb.Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s %d %s", c.GetKind(), c.GetResource(), c.GetFencingToken(), c.GetHolder().GetClientId()))
	}
	return strings.Join(lines, "\n")
}

func (w *watched) wait(c *cluster) error {
	c.t.Helper()
	select {
	case <-w.done:
		return w.ended()
	case <-time.After(patient):
		c.t.Fatal("the watch did not end")
		return nil
	}
}

func (c *cluster) untilSaid(w *watched, want string) {
	c.t.Helper()
	deadline := time.Now().Add(patient)
	for w.said() != want {
		if time.Now().After(deadline) || w.ended() != nil {
			c.t.Fatalf("the watch told\n%s\n(%v), want\n%s", w.said(), w.ended(), want)
		}
		time.Sleep(5 * time.Millisecond) // no signal is given
	}
}

func TestWatchTellsWhatHappens(t *testing.T) {
	c := newCluster(t, 3)
	for i, n := range []*node{c.leader(), c.followers()[0]} {
		p := fmt.Sprintf("p%d/", i)
		w := c.watch(n, p, "")
		a := c.acquire(n, acquireOf(p+"a", "A", p+"1", 0))
		c.acquire(n, acquireOf("other", "A", p+"2", 0))
		b := c.begin(n, acquireOf(p+"a", "B", p+"1", 20*time.Second))
		c.untilWaiting(p+"a", 1)
		c.release(n, a)
		granted, err := b.wait(t)
		check(t, err)
		broken, err := n.locks.Break(c.context(), &lockpb.BreakRequest{Resource: p + "a"})
		check(t, err)
		again, err := n.locks.Break(c.context(), &lockpb.BreakRequest{Resource: p + "a"})
		check(t, err)
		short := c.acquire(n, &lockpb.AcquireRequest{Resource: p + "short", ClientId: "C", RequestId: p + "1", Ttl: proto.Int32(2000)})
		c.untilSaid(w, fmt.Sprintf(`GRANTED %[1]sa %[2]d A
RELEASED %[1]sa %[2]d A
GRANTED %[1]sa %[3]d B
BROKEN %[1]sa %[4]d B
BROKEN %[1]sa %[5]d %[6]s
GRANTED %[1]sshort %[7]d C
EXPIRED %[1]sshort %[7]d C`, p, a.GetFencingToken(), granted.GetFencingToken(), broken.GetFencingToken(), again.GetFencingToken(), "", short.GetFencingToken()))
		first, last := w.all()[0], w.all()[6]
		if first.GetIndex() != a.GetIndex() || first.GetAsOf() != a.GetAsOf() || first.GetHolder().GetRemaining() != a.GetTtl() ||
			first.GetHolder().GetIdentity() != "anonymous" || first.GetHolder().GetMode() != lockpb.Mode_EXCLUSIVE || first.GetHolder().GetLeaseHash() == "" {
			t.Errorf("the grant is told as %v, answered as %v", first, a)
		}
		if held := last.GetHolder().GetHeldFor(); held < 2000 {
			t.Errorf("held for %d ms", held)
		}
		w.quit()
		c.release(n, c.acquire(n, acquireOf("other2", "A", p+"3", 0)))
		_, err = n.locks.Break(c.context(), &lockpb.BreakRequest{Resource: "other"})
		check(t, err)
	}
}

// What a list shows and what a watch from its revision tells is everything, also where the node that serves the watch
// has not come as far as the list.
func TestWatchFromAList(t *testing.T) {
	c := newCluster(t, 3)
	leader, lagging := c.leader(), c.followers()[1]
	c.disconnect(lagging)
	kept := c.acquire(leader, acquireOf("r/kept", "A", "1", 0))
	list, err := leader.locks.List(c.context(), &lockpb.ListRequest{Prefix: "r/"})
	check(t, err)
	if len(list.GetLocks()) != 1 || list.GetLocks()[0].GetHolders()[0].GetFencingToken() != kept.GetFencingToken() {
		t.Fatalf("listed %v", list)
	}
	c.connect(c.nodes...)
	c.until("the node is back", func() bool { return lagging.server.Ready() == nil })
	w := c.watch(lagging, "r/", list.GetRevision())
	next := c.acquire(c.leader(), acquireOf("r/next", "A", "2", 0))
	c.untilSaid(w, fmt.Sprintf("GRANTED r/next %d A", next.GetFencingToken()))
	if _, _, resyncs := w.count(); resyncs != 0 {
		t.Errorf("%d resyncs", resyncs)
	}
}

// A watch whose node is killed goes on at another with its last revision. Nothing is missed and nothing is told twice,
// while leases come and go and the leader changes.
func TestWatchGoesOnAtAnotherNode(t *testing.T) {
	c := newCluster(t, 3)
	victim := c.leader()
	others := c.followers()
	witness := c.watch(others[1], "r/", "")
	w := c.watch(victim, "r/", "")
	ctx, stop := context.WithCancel(context.Background()) // they work for as long as anything is waited for
	defer stop()
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			for nth := 0; ctx.Err() == nil; nth++ {
				in := acquireOf(fmt.Sprintf("r/%d", i), fmt.Sprint("C", i), fmt.Sprint(nth), 0)
				in.Ttl = proto.Int32(2000)
				out, err := others[0].locks.Acquire(ctx, in)
				if err == nil {
					_, _ = others[0].locks.Release(ctx, &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
					continue
				}
				select { // an answer that was lost has left a lease behind: it runs out
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	atLeast := func(w *watched, n int) {
		t.Helper()
		c.until(fmt.Sprintf("%d changes are told", n), func() bool { changes, _, _ := w.count(); return changes >= n })
	}
	atLeast(w, 30)
	victim.kill()
	if err := w.wait(c); err == nil {
		t.Fatal("a watch outlived its node")
	}
	told, _, _ := w.count()
	atLeast(witness, told+30) // what happens meanwhile must be told afterwards
	second := c.watch(others[0], "r/", w.at())
	atLeast(second, 60)
	stop()
	workers.Wait()
	final := c.acquire(others[0], acquireOf("r/final", "Z", "1", 0))
	last := fmt.Sprintf("GRANTED r/final %d Z", final.GetFencingToken())
	// Behind it a lease may end that a lost answer has left.
	untilLast := func(before []*lockpb.Change, w *watched) (all []*lockpb.Change) {
		c.until("the last change is told", func() bool {
			all = append(slices.Clone(before), w.all()...)
			at := slices.IndexFunc(all, func(change *lockpb.Change) bool { return saidAll([]*lockpb.Change{change}) == last })
			all = all[:at+1]
			return at >= 0
		})
		return all
	}
	got, want := untilLast(w.all(), second), untilLast(nil, witness)
	if saidAll(got) != saidAll(want) {
		t.Errorf("the two watches told %d and %d changes, one without a break %d", told, len(got)-told, len(want))
		for i := range min(len(got), len(want)) {
			if got[i].String() != want[i].String() {
				t.Fatalf("change %d: got %v, want %v", i, got[i], want[i])
			}
		}
	}
	for i := 1; i < len(got); i++ {
		if got[i].GetIndex() < got[i-1].GetIndex() {
			t.Errorf("%v after %v", got[i], got[i-1])
		}
	}
	if _, _, resyncs := second.count(); resyncs != 0 {
		t.Errorf("%d resyncs", resyncs)
	}
}

// An idle watch is told that nothing has happened. One on a node that is cut off is not, and ends.
func TestWatchDoesNotLookAliveWhileItIsBlind(t *testing.T) {
	c := (&cluster{t: t, beat: testBeat}).begun(3)
	n := c.followers()[0]
	w := c.watch(n, "nothing/", "")
	c.until("beats come", func() bool { _, messages, _ := w.count(); return messages >= 3 })
	if changes, _, _ := w.count(); changes != 0 {
		t.Errorf("%d changes", changes)
	}
	c.disconnect(n)
	began := time.Now()
	wantRefusal(t, w.wait(c), lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
	if took := time.Since(began); took < testBeat {
		t.Errorf("it ended after %v", took)
	}
	c.until("the node knows that it is cut off", func() bool { return n.server.Ready() != nil })
	_, err := c.firstOf(n, &lockpb.WatchRequest{})
	wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
}

// firstOf is the first message of a watch.
func (c *cluster) firstOf(n *node, in *lockpb.WatchRequest) (*lockpb.WatchResponse, error) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.context())
	defer cancel()
	stream, err := n.locks.Watch(ctx, in)
	check(c.t, err)
	return stream.Recv()
}

func TestWatchRefusesWhatItCannotServe(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	first, err := c.firstOf(n, &lockpb.WatchRequest{})
	check(t, err)
	now, err := feed.ParseRevision(first.GetRevision())
	check(t, err)
	other := func(change func(*feed.Revision)) string {
		r := now
		r.Groups = slices.Clone(now.Groups)
		change(&r)
		return r.String()
	}
	for name, in := range map[string]*lockpb.WatchRequest{
		"no revision":         {Revision: "42"},
		"a revision cut off":  {Revision: first.GetRevision()[:10]},
		"of another cluster":  {Revision: other(func(r *feed.Revision) { r.Cluster = feed.ClusterMark("lg-other") })},
		"of more groups":      {Revision: other(func(r *feed.Revision) { r.Groups = append(r.Groups, feed.Place{}) })},
		"ahead of the log":    {Revision: other(func(r *feed.Revision) { r.Groups[0].Index += 1_000_000 })},
		"no beginning of one": {Prefix: "/a"},
	} {
		_, err := c.firstOf(n, in)
		r := wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO)
		if want := map[bool]string{true: "prefix", false: "revision"}[in.GetPrefix() != ""]; r.detail.GetField() != want {
			t.Errorf("%s: the refusal is about %q: %v", name, r.detail.GetField(), err)
		}
	}
	later := other(func(r *feed.Revision) { r.Groups[0].Incarnation++ })
	_, err = c.firstOf(n, &lockpb.WatchRequest{Revision: later})
	wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)

	f := n.server.config.Journal.feed
	var taken []*feed.Watcher
	for {
		w, err := f.Watch("", nil, f.End())
		if err != nil {
			break
		}
		taken = append(taken, w)
	}
	_, err = c.firstOf(n, &lockpb.WatchRequest{})
	wantRefusal(t, err, lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
	for _, w := range taken {
		w.Close()
	}
	_, err = c.firstOf(n, &lockpb.WatchRequest{})
	check(t, err)
}

// A reader that is slow holds up neither the log nor other watches. It is told that it missed something, and what it
// is told then is right.
func TestSlowWatchIsResynced(t *testing.T) {
	c := (&cluster{t: t, feed: feed.Config{Entries: 8}}).begun(1)
	n := c.nodes[0]
	quick := c.watch(n, "", "")
	began, goOn := make(chan struct{}), make(chan struct{})
	slow := &watched{t: t, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.context())
	go func() {
		defer close(slow.done)
		begin := sync.OnceFunc(func() { close(began); <-goOn })
		slow.err = n.server.watchTo(ctx, &lockpb.WatchRequest{}, func(m *lockpb.WatchResponse) error {
			slow.take(m)
			begin()
			return nil
		})
	}()
	<-began
	for i := range 20 {
		c.release(n, c.acquire(n, acquireOf("r", "A", fmt.Sprint(i), 0)))
		c.until("the quick one is told", func() bool { changes, _, _ := quick.count(); return changes == 2*i+2 })
	}
	close(goOn)
	c.until("the slow one is resynced", func() bool { _, _, resyncs := slow.count(); return resyncs == 1 })
	last := c.acquire(n, acquireOf("last", "A", "last", 0))
	c.untilSaid(slow, fmt.Sprintf("GRANTED last %d A", last.GetFencingToken()))
	if _, _, resyncs := quick.count(); resyncs != 0 {
		t.Errorf("the quick one is resynced %d times", resyncs)
	}
	cancel()
	<-slow.done
}

// A client that reads nothing of its watch over gRPC is cut off, so that it does not keep the place of another.
func TestWatchThatIsNotRead(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	n.server.stall = 300 * time.Millisecond
	stream, err := n.locks.Watch(c.context(), &lockpb.WatchRequest{})
	check(t, err)
	c.until("the watch is there", func() bool { return n.server.calls.Load() == 1 })
	s := c.talk(n)
	for batch := range 10 { // much more than a connection holds of what is not read
		calls := make([]*lockpb.Call, 100)
		for i := range calls {
			calls[i] = acquireCall(acquireOf(fmt.Sprintf("%s/%d/%d", strings.Repeat("r", 200), batch, i), "A", fmt.Sprint(batch, "/", i), 0))
		}
		s.answer(s.send(calls...))
	}
	c.until("the watch is cut off", func() bool { return n.server.calls.Load() == 1 })
	for err == nil {
		_, err = stream.Recv()
	}
	wantRefusal(t, err, lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
}

// A revision that is older than what is kept begins with a resync, as does one of an earlier life of the cluster.
func TestOldRevisionIsResynced(t *testing.T) {
	c := (&cluster{t: t, feed: feed.Config{Entries: 2}}).begun(1)
	n := c.nodes[0]
	first, err := c.firstOf(n, &lockpb.WatchRequest{})
	check(t, err)
	for i := range 4 {
		c.acquire(n, acquireOf(fmt.Sprint("r/", i), "A", fmt.Sprint(i), 0))
	}
	again, err := c.firstOf(n, &lockpb.WatchRequest{Revision: first.GetRevision()})
	check(t, err)
	if !again.GetResync() || len(again.GetChanges()) != 0 || again.GetRevision() == first.GetRevision() {
		t.Errorf("got %v", again)
	}
	if m, err := c.firstOf(n, &lockpb.WatchRequest{Revision: again.GetRevision()}); err != nil || m.GetResync() {
		t.Errorf("from the revision of the resync: %v, %v", m, err)
	}
}

// A gateway has no replica: it passes a watch on, and goes to the next node when one is lost.
func TestWatchThroughAGateway(t *testing.T) {
	c := newCluster(t, 3)
	first := c.leader()
	follower := c.followers()[0]
	config := follower.server.config
	config.Node, config.Journal, config.Metrics = "gateway", nil, NewMetrics(prometheus.NewRegistry())
	gateway, err := New(config, follower.group)
	check(t, err)
	ctx, cancel := context.WithCancel(c.context())
	var running sync.WaitGroup
	running.Go(func() { gateway.Run(ctx) })
	w := &watched{t: t, done: make(chan struct{})}
	running.Go(func() {
		defer close(w.done)
		w.err = gateway.watchTo(ctx, &lockpb.WatchRequest{Prefix: "r"}, func(m *lockpb.WatchResponse) error { w.take(m); return nil })
	})
	c.until("the watch has begun", func() bool { return w.at() != "" })
	a := c.acquire(follower, acquireOf("r", "A", "1", 0))
	c.untilSaid(w, fmt.Sprintf("GRANTED r %d A", a.GetFencingToken()))
	first.kill()
	c.until("there is another leader", func() bool { return c.aliveLeader(first) != nil })
	c.release(follower, a)
	c.untilSaid(w, fmt.Sprintf("GRANTED r %[1]d A\nRELEASED r %[1]d A", a.GetFencingToken()))
	bad := gateway.watchTo(ctx, &lockpb.WatchRequest{Revision: "bad"}, func(*lockpb.WatchResponse) error { return nil })
	wantRefusal(t, bad, lockpb.Reason_INVALID, lockpb.Applied_NO)
	cancel()
	running.Wait()
}

// Over HTTP each message is a line that is there at once, as the API document says.
func TestWatchOverHTTP(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	ctx, cancel := context.WithCancel(c.context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.http.URL+"/lock/watch?prefix=r", nil)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	next := func() (out struct{ Result, Error json.RawMessage }) {
		t.Helper()
		for {
			line, err := lines.ReadBytes('\n')
			check(t, err)
			check(t, json.Unmarshal(line, &out))
			if out.Error != nil || !strings.Contains(string(out.Result), `"changes":[]`) {
				return out
			}
		}
	}
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	var message lockpb.WatchResponse
	first := next()
	check(t, protojson.Unmarshal(first.Result, &message))
	if want := fmt.Sprintf("GRANTED r %d A", held.GetFencingToken()); saidAll(message.GetChanges()) != want {
		t.Errorf("got %s, want %s", first.Result, want)
	}
	if !strings.Contains(string(first.Result), `"kind":"GRANTED"`) || !strings.Contains(strings.ReplaceAll(string(first.Result), " ", ""), fmt.Sprintf(`"fencingToken":"%d"`, held.GetFencingToken())) {
		t.Errorf("the line is %s", first.Result)
	}
	n.server.Stop()
	if end := next(); !strings.Contains(string(end.Error), `"reason":"STOPPING"`) {
		t.Errorf("the stream ends with %s", end.Error)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("behind the end: %q, %v", rest, err)
	}
}

func TestWatchOverHTTPIsStrict(t *testing.T) {
	c := newCluster(t, 1)
	for path, want := range map[string]string{
		"/lock/watch?prefix=/a":             "prefix",
		"/lock/watch?revision=x":            "revision",
		"/lock/watch?prefixes=a":            "prefixes",
		"/lock/watch?prefix=a&prefix=b":     "prefix",
		"/lock/hot?limit=1000":              "limit",
		"/lock/hot?limit=many":              "limit",
		"/lock/watch?prefix=a&revision=b=c": "revision",
	} {
		a := c.do(c.nodes[0], "GET", path, "")
		if a.code != http.StatusBadRequest || a.body["reason"] != "INVALID" || a.body["field"] != want {
			t.Errorf("%s: %d %s", path, a.code, a.text)
		}
	}
}
