package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Classes of calls, by which latencies are told.
const (
	acquires = "acquire"
	releases = "release"
	renewals = "renew"
)

// Bounds of a flow.
const (
	flowTick   = 2 * time.Millisecond // how often what is due is sent: part of each latency
	lastAnswer = 10 * time.Second     // how long answers are waited for at the end
)

// flow fills a population of leases, and then, unless it is only to be kept, has it live as the mix says.
func (w *worker) flow(ctx context.Context) error {
	drivers, err := w.drivers(ctx)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	for _, d := range drivers {
		wg.Go(func() {
			if err := d.run(running); err != nil {
				cancel(err)
			}
		})
	}
	err = w.stages(running, drivers)
	cancel(errDone)
	wg.Wait()
	if cause := context.Cause(running); !errors.Is(cause, errDone) {
		return cause
	}
	if err != nil {
		return err
	}
	for _, d := range drivers {
		w.summary.add(d)
		w.records = append(w.records, d.records...)
	}
	w.summary.tell(drivers)
	if w.plan.Records == "" {
		return nil
	}
	return WriteRecords(w.plan.Records, w.records)
}

// errDone ends the drivers when all is done.
var errDone = errors.New("done")

func (w *worker) drivers(ctx context.Context) ([]*driver, error) {
	streams := max(1, w.plan.Mix.Streams)
	drivers := make([]*driver, streams)
	began := time.Now()
	for i := range drivers {
		drivers[i] = newDriver(w.plan, i, began)
		if err := drivers[i].connect(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("stream %d: %w", i, err), closeDrivers(drivers[:i]))
		}
	}
	return drivers, nil
}

func closeDrivers(drivers []*driver) error {
	for _, d := range drivers {
		d.wire.close()
	}
	return nil
}

// stages waits for the population to be there, sets the measured time, and waits for its end.
func (w *worker) stages(ctx context.Context, drivers []*driver) error {
	if err := w.fill(ctx, drivers); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	w.ready()
	if w.plan.Kind == Fill {
		<-w.stop.Done()
		return nil
	}
	from := time.Now().Add(w.plan.WarmUp)
	for _, d := range drivers {
		d.begin(time.Now(), from)
	}
	var end <-chan time.Time
	if w.plan.Duration > 0 {
		timer := time.NewTimer(w.plan.WarmUp + w.plan.Duration)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
	case <-w.stop.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	to := time.Now()
	w.summary.From, w.summary.To = At(from), At(to)
	for _, d := range drivers {
		d.finish(to)
	}
	late := time.NewTimer(lastAnswer)
	defer late.Stop()
	for _, d := range drivers {
		select {
		case <-d.drained:
		case <-late.C:
			return nil // what is not answered counts as failed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// fill waits for the population to be there.
func (w *worker) fill(ctx context.Context, drivers []*driver) error {
	var limit <-chan time.Time
	if w.plan.Mix.Limit > 0 {
		timer := time.NewTimer(w.plan.Mix.Limit)
		defer timer.Stop()
		limit = timer.C
	}
	tell := time.NewTicker(10 * time.Second)
	defer tell.Stop()
	for _, d := range drivers {
		for there := false; !there; {
			select {
			case <-d.filled:
				there = true
			case <-tell.C:
				fmt.Fprintf(w.out, "progress %d of %d leases\n", taken(drivers), w.plan.Mix.Clients*w.plan.Mix.Leases)
			case <-limit:
				w.summary.Missing = w.plan.Mix.Clients*w.plan.Mix.Leases - taken(drivers)
				for _, d := range drivers {
					d.stopFilling()
				}
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	if w.plan.Kind == Flow {
		return nil // what failed is told at the end
	}
	for _, d := range drivers {
		if err := d.broken(); err != nil {
			return err
		}
	}
	return nil
}

// taken is how many leases of the population are there, or were.
func taken(drivers []*driver) int {
	n := 0
	for _, d := range drivers {
		d.mu.Lock()
		n += d.got
		d.mu.Unlock()
	}
	return n
}

// add takes what a driver counted; it has ended.
func (s *Summary) add(d *driver) {
	s.Lost += d.lost
	s.Fails += d.fails + len(d.pending)
	s.Fail = cmp.Or(s.Fail, d.fail)
	if len(d.pending) > 0 {
		s.Fail = cmp.Or(s.Fail, fmt.Sprintf("%d calls were not answered within %v", len(d.pending), lastAnswer))
	}
	s.Violations = append(s.Violations, d.violations...)
	s.Operations += d.operations
	s.Wire = d.wire.kind
}

// tell summarises the latencies.
func (s *Summary) tell(drivers []*driver) {
	s.Latencies = map[string]Latency{}
	for _, class := range []string{acquires, releases, renewals} {
		var all Histogram
		for _, d := range drivers {
			if h := d.latencies[class]; h != nil {
				all.Merge(h)
			}
		}
		s.Latencies[class] = all.Latency()
	}
}
