package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Any node knows what is hot, hottest first, and how long it is held and waited for.
func TestHotResources(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	for i := range 20 {
		c.release(n, c.acquire(n, acquireOf("hot", "A", fmt.Sprint(i), 0)))
		if i%4 == 0 {
			c.release(n, c.acquire(n, acquireOf("warm", "A", fmt.Sprint("w", i), 0)))
		}
	}
	held := c.acquire(n, acquireOf("held", "A", "h", 0))
	_, err := n.locks.Acquire(c.context(), acquireOf("held", "B", "h", 0))
	wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO)
	_, err = n.locks.Acquire(c.context(), acquireOf("held", "B", "i", 300*time.Millisecond))
	wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)
	waiting := c.begin(n, acquireOf("held", "C", "h", 20*time.Second))
	c.untilWaiting("held", 1)
	other := c.begin(n, acquireOf("held", "D", "h", 20*time.Second))
	c.untilWaiting("held", 2)
	c.release(n, held)
	_, err = waiting.wait(t)
	check(t, err)
	for _, n := range c.nodes {
		out, err := n.locks.Hot(c.context(), &lockpb.HotRequest{Limit: 3})
		check(t, err)
		var names []string
		for _, r := range out.GetResources() {
			names = append(names, fmt.Sprint(r.GetResource(), " ", r.GetAcquires(), "/", r.GetRefusals()))
		}
		if got := strings.Join(names, ", "); !strings.HasPrefix(got, "hot 20/0, held ") || !strings.HasSuffix(got, "/2, warm 5/0") {
			t.Fatalf("%s: %s", n.id, got) // a wait that is attached again is another acquire in the log
		}
		r := out.GetResources()[1]
		if r.GetWaiting() != 1 || r.GetHolders() != 1 || r.GetMeanHeldFor() < 250 || r.GetMeanWaited() > r.GetMeanHeldFor() {
			t.Errorf("%v", r)
		}
	}
	out, err := n.locks.Hot(c.context(), &lockpb.HotRequest{Limit: 1})
	check(t, err)
	if len(out.GetResources()) != 1 {
		t.Errorf("%d resources", len(out.GetResources()))
	}
	text := c.do(c.leader(), "GET", "/metrics", "").text
	for _, want := range []string{
		`lychgate_lease_held_seconds_count{cause="released"} 26`, `lychgate_lease_held_seconds_count{cause="recovered"} 0`,
		`lychgate_wait_seconds_count{outcome="granted"} 1`, `lychgate_wait_seconds_count{outcome="timed_out"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	other.quit()
}
