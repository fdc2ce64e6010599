package client_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// in finds a resource of a group, of two.
func in(group uint16, nth int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("r%d/%d", nth, i); lease.GroupOf(lease.Resource(name), 2) == group {
			return name
		}
	}
}

// Groups have clocks of their own, hours apart perhaps. One heartbeat may be for leases of several, and says one time.
func TestLeaseTimesOfGroupsAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New()
		defer s.Close()
		s.SetFeatures(clienttest.Heartbeats)
		times := [2]int64{int64(5 * time.Hour), int64(time.Minute)}
		var asked []int64
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			switch m := call.Request.(type) {
			case *lockpb.StatusRequest:
				return &lockpb.StatusResponse{AsOf: times[0], Groups: []*lockpb.GroupStatus{{AsOf: times[0]}, {Group: 1, AsOf: times[1]}}}, nil
			case *lockpb.AcquireRequest:
				group := lease.GroupOf(lease.Resource(m.GetResource()), 2)
				if group == 1 {
					asked = append(asked, m.GetAsOf())
				}
				id := lease.NewID(group, [14]byte{byte(len(s.Calls("Acquire")))})
				return &lockpb.AcquireResponse{
					LeaseId: id.String(), FencingToken: 1, Ttl: 30_000, Remaining: 30_000, Resource: m.GetResource(), AsOf: times[group],
				}, nil
			case *lockpb.HeartbeatRequest:
				out := &lockpb.HeartbeatResponse{AsOf: times[0]}
				for _, id := range m.GetLeaseIds() {
					out.Beats = append(out.Beats, &lockpb.Beat{LeaseId: id, Remaining: 30_000, FencingToken: 1})
				}
				return out, nil
			}
			return next(ctx)
		})
		c := dial(t, s, client.Config{})
		for nth, group := range []uint16{0, 1} {
			if _, err := c.Acquire(t.Context(), in(group, nth)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(12 * time.Second)
		beats := s.Calls("Heartbeat")
		if len(beats) == 0 || len(beats[0].Request.(*lockpb.HeartbeatRequest).GetLeaseIds()) != 2 {
			t.Fatalf("both leases were to be renewed together: %v", beats)
		}
		if _, err := c.Acquire(t.Context(), in(1, 2)); err != nil {
			t.Fatal(err)
		}
		for _, asOf := range asked {
			if asOf != times[1] {
				t.Errorf("as_of was %v, and the group's time is %v", time.Duration(asOf), time.Duration(times[1]))
			}
		}
	})
}
