package proxybench

import (
	"context"
	"slices"
	"time"
)

// watchInterval is how often a process's clock is read while it works.
const watchInterval = 10 * time.Millisecond

// reading is what a process had used of the processors at a moment.
type reading struct {
	at   int64 // microseconds since 1970, as pgbench's log has them
	used time.Duration
}

// watched are the readings of a run, one after the other. Of the database itself they have no processor time.
type watched []reading

// watching is a goroutine that reads a process's clock until it is stopped.
type watching struct {
	cancel context.CancelFunc
	done   chan struct{}
	got    watched // once done
	err    error   // once done
}

func startWatch(ctx context.Context, t target) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.got, w.err = watch(ctx, t)
	}()
	return w
}

func (w *watching) stop() (watched, error) {
	w.cancel()
	<-w.done
	return w.got, w.err
}

// watch reads the clock of a target's process until ctx is done.
func watch(ctx context.Context, t target) (watched, error) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var got watched
	for {
		now := reading{at: time.Now().UnixMicro()}
		if t.process != nil {
			var err error
			if now.used, err = processorTime(t.process.PID()); err != nil {
				return nil, err
			}
		}
		got = append(got, now)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return got, nil
		}
	}
}

// within is the first and the last reading from one moment to another; false if there are no two.
func (w watched) within(from, to int64) (first, last reading, ok bool) {
	i := slices.IndexFunc(w, func(r reading) bool { return r.at >= from })
	j := len(w) - 1
	for j >= 0 && w[j].at > to {
		j--
	}
	if i < 0 || j <= i {
		return reading{}, reading{}, false
	}
	return w[i], w[j], true
}
