package api

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// leaderless is a group whose leader is not known until it is set. It counts how often it is asked.
type leaderless struct {
	Group
	asked   atomic.Int64
	leader  atomic.Bool
	changed chan struct{}
}

func (g *leaderless) Leader() (string, bool) {
	g.asked.Add(1)
	if g.leader.Load() {
		return "n1", true
	}
	return "", false
}

func (g *leaderless) Changed() <-chan struct{} { return g.changed }

func (*leaderless) Status() group.Status { return group.Status{} }

// Calls that have no leader wait for one. However many they are, they do not ask so often that nothing else gets done, and
// the next leader has them at once.
func TestACrowdWithoutALeaderIsCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, looks = 8000, 10 * time.Second
		g := &leaderless{changed: make(chan struct{})}
		sh := newShard(&Server{}, 0, g)
		var served atomic.Int64
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				out, refused := route(t.Context(), sh, call[*lockpb.ReleaseResponse]{
					patience: time.Minute,
					here: func(context.Context) (*lockpb.ReleaseResponse, *refusal) {
						served.Add(1)
						return &lockpb.ReleaseResponse{}, nil
					},
				})
				if out == nil || refused != nil {
					t.Errorf("got %v, %v", out, refused)
				}
			})
		}
		time.Sleep(looks)
		synctest.Wait()
		most := int64(looks/eachPause) + 10*calls // and the first ones, before the crowd was there
		if asked := g.asked.Load(); asked > most {
			t.Errorf("%d calls asked %d times within %v, more than %d", calls, asked, looks, most)
		}
		began := time.Now()
		g.leader.Store(true)
		close(g.changed)
		wg.Wait()
		if took := time.Since(began); took > 0 || served.Load() != calls {
			t.Errorf("%d of %d calls were served, %v after there was a leader", served.Load(), calls, took)
		}
	})
}

func TestPauseAmidACrowd(t *testing.T) {
	for _, test := range []struct {
		crowd   int64
		d, want time.Duration
	}{
		{1, firstPause, firstPause},
		{50, firstPause, firstPause},
		{1000, longestPause, longestPause},
		{5001, longestPause, time.Second},
		{1 << 20, longestPause, crowdPause},
	} {
		if got := amid(test.crowd, test.d); got != test.want {
			t.Errorf("a pause of %v among %d is %v, want %v", test.d, test.crowd, got, test.want)
		}
	}
}
