package load

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// server answers a driver's calls as a coordinator does, as soon as the test lets it.
type server struct {
	token uint64
	late  []*lockpb.Call
}

// answer answers one call as it should be.
func (s *server) answer(c *lockpb.Call) *lockpb.Answer {
	a := &lockpb.Answer{Id: c.GetId()}
	switch k := c.GetKind().(type) {
	case *lockpb.Call_Acquire:
		s.token++
		a.Kind = &lockpb.Answer_Acquire{Acquire: &lockpb.AcquireResponse{
			LeaseId: k.Acquire.GetRequestId(), FencingToken: s.token, Remaining: k.Acquire.GetTtl(), Resource: k.Acquire.GetResource(),
		}}
	case *lockpb.Call_Release:
		a.Kind = &lockpb.Answer_Release{Release: &lockpb.ReleaseResponse{}}
	case *lockpb.Call_Renew:
		a.Kind = &lockpb.Answer_Renew{Renew: &lockpb.RenewResponse{LeaseId: k.Renew.GetLeaseId(), Remaining: 10_000}}
	case *lockpb.Call_Heartbeat:
		beats := &lockpb.HeartbeatResponse{}
		for _, id := range k.Heartbeat.GetLeaseIds() {
			beats.Beats = append(beats.Beats, &lockpb.Beat{LeaseId: id, Remaining: 10_000})
		}
		a.Kind = &lockpb.Answer_Heartbeat{Heartbeat: beats}
	}
	return a
}

func refusal(id uint64, code codes.Code, r lockpb.Reason) *lockpb.Answer {
	return &lockpb.Answer{Id: id, Kind: &lockpb.Answer_Failure{Failure: &lockpb.Failure{
		Code: int32(code), Refusal: &lockpb.Refusal{Reason: r, Applied: lockpb.Applied_NO},
	}}}
}

// play has a driver run for a time, and the server answer at once, except in a stall.
func play(d *driver, s *server, d1 time.Duration, stalled func(time.Duration) bool) {
	for began := time.Now(); time.Since(began) < d1; time.Sleep(flowTick) {
		s.late = append(s.late, d.due()...)
		if stalled(d.now()) {
			continue
		}
		for _, c := range s.late {
			d.answered(s.answer(c))
		}
		s.late = nil
	}
}

func never(time.Duration) bool { return false }

func filledDriver(t *testing.T, p Plan) (*driver, *server) {
	t.Helper()
	d, s := newDriver(p, 0, time.Now()), &server{}
	play(d, s, time.Second, never)
	select {
	case <-d.filled:
	default:
		t.Fatal("the population is not filled")
	}
	return d, s
}

// A server that stands still for a second is seen as slow by all calls of that second: they were to be sent all the same.
func TestAStallCountsForAllThatWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := filledDriver(t, Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 100, Leases: 1, Churn: 100, Window: 50}})
		d.begin(time.Now(), time.Now())
		from := d.now()
		play(d, s, 10*time.Second, func(now time.Duration) bool { return now > from+4*time.Second && now < from+5*time.Second })
		d.finish(time.Now())
		l := d.latencies[acquires].Latency()
		if l.Count < 990 || l.Count > 1001 {
			t.Errorf("got %d acquires in 10 s at 100 a second", l.Count)
		}
		if l.Max < 990*time.Millisecond || l.P99 < 850*time.Millisecond || l.P50 > 10*time.Millisecond {
			t.Errorf("got %+v: a tenth of the calls has waited for up to a second, evenly", l)
		}
		if want := 2 * l.Count; d.operations < want-4 || d.operations > want+4 {
			t.Errorf("got %d operations, want %d", d.operations, want)
		}
		if d.lost+d.fails != 0 || len(d.violations) != 0 {
			t.Errorf("lost %d, failed %d, violations %v", d.lost, d.fails, d.violations)
		}
	})
}

func TestHeartbeatsRenewAllOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := filledDriver(t, Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 40, Leases: 5, Beat: 2 * time.Second, Window: 400}})
		d.begin(time.Now(), time.Now())
		play(d, s, 4*time.Second, never)
		d.finish(time.Now())
		if n := d.latencies[renewals].Latency().Count; n < 78 || n > 82 {
			t.Errorf("got %d heartbeats of 40 clients in 4 s, one each 2 s", n)
		}
		if d.operations < 390 || d.operations > 410 {
			t.Errorf("got %d renewals of 200 leases", d.operations)
		}
	})
}

// What a coordinator refuses for the moment is sent again, and its latency counts from the first instant.
func TestTemporaryRefusalsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 1, Leases: 1, Window: 1}}, 0, time.Now())
		d.begin(time.Now(), time.Now().Add(-time.Hour)) // measured from the start
		d.from = 1
		d.began = d.began.Add(-time.Second)
		calls := d.due()
		if len(calls) != 1 {
			t.Fatalf("got %d calls, want one", len(calls))
		}
		d.answered(refusal(calls[0].GetId(), codes.Unavailable, lockpb.Reason_NO_LEADER))
		if again := d.due(); len(again) != 0 {
			t.Error("repeated at once")
		}
		time.Sleep(retryPause)
		again := d.due()
		if len(again) != 1 || again[0] != calls[0] {
			t.Fatalf("got %v, want the same call", again)
		}
		d.answered((&server{}).answer(again[0]))
		if l := d.latencies[acquires].Latency(); l.Count != 1 || l.Max < retryPause {
			t.Errorf("got %+v, want one from the first instant", l)
		}
		d.answered(refusal(12345, codes.Internal, lockpb.Reason_INTERNAL)) // nobody's
		if d.fails != 0 {
			t.Error("an answer to nobody counts")
		}
	})
}

func TestWhatADriverJudges(t *testing.T) {
	for _, tt := range []struct {
		name       string
		after      time.Duration // of the answers to the renewals
		answer     func(*server, *lockpb.Call) *lockpb.Answer
		lost, fail int
		violation  string
	}{
		{"ended before its time", 0, func(_ *server, c *lockpb.Call) *lockpb.Answer {
			return refusal(c.GetId(), codes.NotFound, lockpb.Reason_LEASE_ENDED)
		}, 1, 0, "before its time"},
		{"ran out", 20 * time.Second, func(_ *server, c *lockpb.Call) *lockpb.Answer {
			return refusal(c.GetId(), codes.NotFound, lockpb.Reason_LEASE_ENDED)
		}, 1, 0, ""},
		{"one of a heartbeat ended", 0, func(s *server, c *lockpb.Call) *lockpb.Answer {
			a := s.answer(c)
			a.GetHeartbeat().Beats[0].Refusal = &lockpb.Refusal{Reason: lockpb.Reason_LEASE_ENDED}
			return a
		}, 1, 0, "before its time"},
		{"failed", 0, func(_ *server, c *lockpb.Call) *lockpb.Answer {
			return refusal(c.GetId(), codes.PermissionDenied, lockpb.Reason_PERMISSION_DENIED)
		}, 0, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				single := tt.name == "ended before its time" || tt.name == "ran out"
				d, s := filledDriver(t, Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 1, Leases: 1, Single: single, Window: 1}})
				calls := d.beat(nil, 0, d.now())
				time.Sleep(tt.after)
				for _, c := range calls {
					d.answered(tt.answer(s, c))
				}
				if d.lost != tt.lost || d.fails != tt.fail {
					t.Errorf("lost %d, failed %d (%s), want %d, %d", d.lost, d.fails, d.fail, tt.lost, tt.fail)
				}
				if got := strings.Join(d.violations, "; "); (got == "") != (tt.violation == "") || !strings.Contains(got, tt.violation) {
					t.Errorf("got violations %q, want %q", got, tt.violation)
				}
			})
		})
	}
}

func TestATokenThatDoesNotGrowIsAViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := filledDriver(t, Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 1, Leases: 1, Window: 1}})
		for k := range 3 { // the slot has two resources: the third acquire is of the second one again
			if k == 2 {
				s.token = 0
			}
			for _, c := range d.change(nil, 0, d.now()) {
				d.answered(s.answer(c))
			}
		}
		if len(d.violations) != 1 || !strings.Contains(d.violations[0], "token 1 after 2") {
			t.Errorf("got %q", d.violations)
		}
	})
}

// A release or an acquire that is under way is no lost lease for the renewal that meets it.
func TestALeaseThatIsGivenBackIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := filledDriver(t, Plan{TTL: 10 * time.Second, Mix: Mix{Clients: 1, Leases: 1, Window: 1}})
		beat := d.beat(nil, 0, d.now())
		for _, c := range d.change(nil, 0, d.now()) {
			d.answered(s.answer(c))
		}
		a := s.answer(beat[0])
		a.GetHeartbeat().Beats[0].Refusal = &lockpb.Refusal{Reason: lockpb.Reason_LEASE_ENDED}
		d.answered(a)
		if d.lost != 0 || len(d.violations) != 0 {
			t.Errorf("lost %d, violations %v", d.lost, d.violations)
		}
	})
}
