package coordinator

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Each node is restarted in turn while locks are held and taken. None is lost, and no token goes back.
func TestRollingRestart(t *testing.T) {
	r := newGrouped(t, 3, 2)
	r.startAll()
	r.roll(func(int) {})
	if status := r.until(0, "it answers", func(*lockpb.StatusResponse) bool { return true }); status.GetVersion() != status.GetReleaseVersion() {
		t.Errorf("version %d, want %d", status.GetVersion(), status.GetReleaseVersion())
	}
}

// Each node is replaced in turn by one of the next release. What is new is refused until the last one is there, and works
// then by itself.
func TestRollingUpgrade(t *testing.T) {
	r := newGrouped(t, 3, 2)
	r.releases = []uint32{1, 1, 1}
	r.startAll()
	put := func() error {
		_, err := r.cluster(0).PutPolicy(r.context(), &lockpb.PutPolicyRequest{Policy: &lockpb.Policy{
			Of: &lockpb.Policy_Tenant{Tenant: "acme"}, MaxLeases: proto.Int64(1),
		}})
		return err
	}
	wantReason(t, "before", put(), lockpb.Reason_VERSION_TOO_LOW)
	r.roll(func(i int) {
		if i > 0 {
			wantReason(t, "half way", put(), lockpb.Reason_VERSION_TOO_LOW)
		}
		r.releases[i] = 0
	})
	for i := range r.configs {
		r.until(i, "the version has risen", func(s *lockpb.StatusResponse) bool { return s.GetVersion() == 2 })
	}
	deadline := r.context()
	for err := put(); err != nil; err = put() { // the last group follows
		if deadline.Err() != nil {
			t.Fatal("after: ", err)
		}
	}
}

// roll restarts each node while one lock is held all the time and others are taken; before is called in between.
func (r *running) roll(before func(i int)) {
	r.t.Helper()
	held := r.hold("ledger/eu", func() []int {
		var up []int
		for i := range r.configs {
			if r.up(i) {
				up = append(up, i)
			}
		}
		return up
	})
	last := map[string]uint64{}
	take := func(at int, client string) {
		r.t.Helper()
		for g := range uint16(2) {
			resource := resourceOf(g, 2, "rolling")
			out := r.acquire(at, resource, client)
			if out.GetFencingToken() <= last[resource] {
				r.t.Errorf("%s: token %d after %d", resource, out.GetFencingToken(), last[resource])
			}
			last[resource] = out.GetFencingToken()
			_, err := r.locks(at).Release(r.context(), &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
			check(r.t, err)
		}
	}
	for i := range r.configs {
		take(i, "before-"+r.configs[i].Node)
		r.setUp(i, false)
		r.stop(i)
		take((i+1)%3, "without-"+r.configs[i].Node)
		before(i)
		r.start(i)
		r.awaitReady(i)
		r.setUp(i, true)
		take(i, "after-"+r.configs[i].Node)
	}
	held.stop()
	if t, ok := r.t.(*testing.T); ok {
		held.check(t)
	}
}

func (r *running) up(i int) bool {
	r.downMu.Lock()
	defer r.downMu.Unlock()
	return !r.down[i]
}

func (r *running) setUp(i int, up bool) {
	r.downMu.Lock()
	defer r.downMu.Unlock()
	if r.down == nil {
		r.down = map[int]bool{}
	}
	r.down[i] = !up
}
