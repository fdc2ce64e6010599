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
	seen := make(map[int64]bool)
	c := Config{Members: []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}, Limits: Limits{SnapshotBytes: 600}}
	for _, c.Node = range []string{"a", "b", "c"} {
		if n := c.snapshotBytes(); n < 600 || n > 900 || seen[n] {
			t.Errorf("%s takes a snapshot every %d bytes", c.Node, n)
		} else {
			seen[n] = true
		}
	}
}
