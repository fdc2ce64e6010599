package group

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a writer that takes its time.
type slow time.Duration

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return len(b), nil
}

func TestSnapshotsTakeAPartOfACPU(t *testing.T) {
	for _, test := range []struct {
		name string
		each time.Duration
		rush bool
		want time.Duration
	}{
		{"quick writes", time.Millisecond, false, 10 * pacedPart * time.Millisecond},
		{"slow writes rest no longer than is good", time.Second, false, 10 * (time.Second + longestRest)},
		{"a node that is about to stop does not rest", time.Millisecond, true, 10 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rush atomic.Bool
				rush.Store(test.rush)
				began := time.Now()
				p := newPaced(slow(test.each), &rush)
				for range 10 {
					if n, err := p.Write(make([]byte, 100)); n != 100 || err != nil {
						t.Fatal(n, err)
					}
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("ten writes took %v, want %v", took, test.want)
				}
				if p.written != 1000 {
					t.Errorf("%d bytes were counted, want 1000", p.written)
				}
			})
		})
	}
}

func TestMembersDoNotSnapshotAtOnce(t *testing.T) {
	seen := make(map[float64]bool)
	c := Config{Members: []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}}
	for _, c.Node = range []string{"a", "b", "c"} {
		if f := c.spread(); f < 1 || f > 1.5 || seen[f] {
			t.Errorf("the log of %s may grow to %v of the usual", c.Node, f)
		} else {
			seen[f] = true
		}
	}
}

// The log may grow to what the last snapshot has come to, and on each member to another size.
func TestLogGrowsWithTheState(t *testing.T) {
	entry := sealed(t, 1, 1, 1, at(time.Second), initial())
	weight := int64(len(entry.Data))
	for _, test := range []struct {
		name        string
		limit, size int64
		spread      float64
		grown       bool
	}{
		{"past the limit", weight - 1, 0, 1, true},
		{"up to the limit", weight, 0, 1, false},
		{"past the limit, not past a large state", weight - 1, weight, 1, false},
		{"past the state", 1, weight - 1, 1, true},
		{"past the first member's limit, not past this one's", weight - 1, 0, 1.5, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReplica(newWaits(1), func(Applied) {}, func(uint64) {}, test.limit)
			r.size.Store(test.size)
			r.spread = test.spread
			r.Apply(entry)
			if got := len(r.grown) > 0; got != test.grown {
				t.Errorf("a snapshot is asked for: %v, want %v", got, test.grown)
			}
		})
	}
}
