package group

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

func at(d time.Duration) lock.LeaseTime { return lock.LeaseTime(d) }

// Elapsed time counted since the last commit would stand still here: under load there is always a fresh one.
func TestLeaseClockRunsUnderUninterruptedLoad(t *testing.T) {
	c := startLeaseClock(at(time.Hour), 0, 2*time.Second)
	committed := at(time.Hour)
	for now := time.Duration(0); now <= time.Minute; now += time.Millisecond {
		committed = c.stamp(now, committed) // each entry commits at once
	}
	if got, want := committed, at(time.Hour+time.Minute); got != want {
		t.Errorf("after a minute of load the clock shows %d, want %d", got, want)
	}
}

// Counted since the last committed stamp, it would step back as soon as entries overlap.
func TestLeaseClockWithEntriesInFlight(t *testing.T) {
	c := startLeaseClock(0, 0, 2*time.Second)
	const latency = 30 * time.Millisecond
	var stamps []lock.LeaseTime
	for now := time.Duration(0); now <= 10*time.Second; now += time.Millisecond {
		committed := lock.LeaseTime(0)
		if now > latency {
			committed = stamps[(now-latency)/time.Millisecond]
		}
		s := c.stamp(now, committed)
		if n := len(stamps); n > 0 && s < stamps[n-1] {
			t.Fatalf("at %s the clock steps back from %d to %d", now, stamps[n-1], s)
		}
		stamps = append(stamps, s)
	}
	if got, want := stamps[len(stamps)-1], at(10*time.Second); got != want {
		t.Errorf("after 10s with entries in flight the clock shows %d, want %d", got, want)
	}
}

// Counted since a fixed anchor, it would catch up after the stall and expire everybody at once.
func TestLeaseClockDoesNotCatchUpAfterAStall(t *testing.T) {
	const limit = 2 * time.Second
	c := startLeaseClock(0, 0, limit)
	committed := c.stamp(time.Second, 0)
	c.stamp(time.Second+100*time.Millisecond, committed) // never commits during the stall
	resumed := c.stamp(61*time.Second, committed)
	if got, want := resumed, committed.Add(limit); got != want {
		t.Errorf("the first stamp after a stall of a minute is %d, want %d: the limit ahead of what was committed", got, want)
	}
	committed = resumed
	if got, want := c.stamp(62*time.Second, committed), committed.Add(time.Second); got != want {
		t.Errorf("a second later the clock shows %d, want %d: what the limit cut off is gone", got, want)
	}
}

func TestLeaseClockStandsStillWhileNothingCommits(t *testing.T) {
	c := startLeaseClock(0, 0, time.Second)
	for now := time.Duration(0); now < time.Hour; now += 10 * time.Millisecond {
		if s := c.stamp(now, 0); s > at(time.Second) {
			t.Fatalf("at %s nothing is committed and the clock shows %d", now, s)
		}
	}
}

// A clock that is driven at random never goes back, never runs faster than the instants it was given, and
// is never further ahead of what was committed than its limit, unless it was there already.
func TestLeaseClockIsNeverFasterThanRealTime(t *testing.T) {
	stamps := 0
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(1, int64(3*time.Second)).Draw(t, "limit"))
		state := lock.LeaseTime(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "state"))
		now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		c := startLeaseClock(state, now, limit)
		type reading struct {
			now   time.Duration
			stamp lock.LeaseTime
		}
		all := []reading{{now, state}}
		committed := 0 // index into all
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.OneOf(
				rapid.Just(int64(0)),
				rapid.Int64Range(0, int64(50*time.Millisecond)),
				rapid.Int64Range(0, int64(5*time.Minute)),
			).Draw(t, "elapsed"))
			committed = rapid.IntRange(committed, len(all)-1).Draw(t, "committed")
			s := c.stamp(now, all[committed].stamp)
			last := all[len(all)-1]
			if s < last.stamp {
				t.Fatalf("the clock steps back from %d to %d", last.stamp, s)
			}
			if s > last.stamp && s.Sub(all[committed].stamp) > limit {
				t.Fatalf("the stamp %d is more than %s ahead of the committed %d", s, limit, all[committed].stamp)
			}
			for _, earlier := range all {
				if lease, real := s.Sub(earlier.stamp), now-earlier.now; lease > real {
					t.Fatalf("lease time went on by %s in %s", lease, real)
				}
			}
			all = append(all, reading{now, s})
			stamps++
		}
	})
	t.Logf("%d stamps", stamps)
	if stamps < 1000 {
		t.Errorf("only %d stamps were checked", stamps)
	}
}

func TestClockLimit(t *testing.T) {
	for _, test := range []struct{ minTTL, want time.Duration }{
		{time.Second, 250 * time.Millisecond},
		{5 * time.Second, 1250 * time.Millisecond},
		{8 * time.Second, 2 * time.Second},
		{time.Minute, 2 * time.Second},
	} {
		if got := clockLimit(test.minTTL); got != test.want {
			t.Errorf("the limit with a shortest TTL of %s is %s, want %s", test.minTTL, got, test.want)
		}
	}
}
