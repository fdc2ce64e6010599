package bench

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// traffic is what the relays passed on, as it grew.
type traffic struct {
	relays  []*relay
	samples []sample
}

type sample struct {
	at    int64
	bytes int64
}

// sample takes samples until the returned function is called, which waits for the last.
func (t *traffic) sample(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stage.Pause(ctx, 100*time.Millisecond) == nil {
			s := sample{at: load.Now()}
			for _, r := range t.relays {
				s.bytes += r.passed.Load()
			}
			t.samples = append(t.samples, s)
		}
	}()
	return func() { cancel(); <-done }
}

// between is the mean bandwidth of a time in MB (10^6 bytes) a second, all connections and both directions together.
func (t *traffic) between(from, to int64) float64 {
	var first, last sample
	for _, s := range t.samples {
		if s.at < from || s.at > to {
			continue
		}
		if first.at == 0 {
			first = s
		}
		last = s
	}
	if last.at == first.at {
		return 0
	}
	return float64(last.bytes-first.bytes) / 1e6 / time.Duration(last.at-first.at).Seconds()
}

// snapshots are the folders of the nodes' snapshots, those of one node that is down excepted.
func snapshots(l *lychgate, down int) map[string]bool {
	folders := map[string]bool{}
	for i := range nodeCount {
		if i == down {
			continue
		}
		_ = filepath.WalkDir(filepath.Join(l.dir, nodeName(i)), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == "snapshots" {
				folders[path] = true
			}
			return nil // what is gone meanwhile is not counted
		})
	}
	return folders
}
