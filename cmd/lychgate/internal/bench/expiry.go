package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// expiry has many leases end at the same instant, and measures until they are gone, and what others feel of it.
func (r *run) expiry(ctx context.Context) error {
	ours, err := startLychgate(r.children, r.config.Program, r.path("lychgate"), 0, 0)
	if err != nil {
		return err
	}
	defer ours.stop()
	if err := ours.awaitReady(ctx); err != nil {
		return err
	}
	end, err := r.fillUntil(ctx, ours)
	if err != nil {
		return err
	}
	others := r.others(ours)
	crew, err := r.hire(ctx, ours, others, startTimeout)
	if err != nil {
		return err
	}
	if err := stage.Pause(ctx, time.Until(end)); err != nil {
		return err
	}
	drained, err := r.drain(ctx, ours, 2*uint64(r.size.othersRate))
	if err != nil {
		return err
	}
	crew.dismiss()
	records, sum, err := r.harvest(ctx, crew, ours, others, startTimeout)
	if err != nil {
		return err
	}
	if sum.Fails > 0 || sum.Lost > 0 {
		return fmt.Errorf("others: %d calls failed, %d leases lost: %s", sum.Fails, sum.Lost, sum.Fail)
	}
	_, acquires := measured(records, load.At(end), load.At(drained.Add(time.Second)))
	tail, took := figures.Quantile(acquires, 0.99), drained.Sub(end)
	r.progress("  %d leases were gone %v after their time; others' p99 meanwhile %v (%d acquires)", r.size.expiring, took.Round(time.Millisecond), tail, len(acquires))
	var within, calm []figures.Goal
	if r.size.full {
		within, calm = []figures.Goal{figures.AtMost(2)}, []figures.Goal{figures.AtMost(200)}
	}
	r.report.Add("expiry_drain_s", "s", took.Seconds(), nil, within...)
	r.report.Add("expiry_others_p99_ms", "ms", figures.MS(tail), nil, calm...)
	return nil
}

// fillUntil takes all the leases, each for what is left until one instant, and tells it.
func (r *run) fillUntil(ctx context.Context, s side) (time.Time, error) {
	speed, err := r.fillSpeed(ctx, s)
	if err != nil {
		return time.Time{}, err
	}
	end := time.Now().Add(r.size.expiryLeast + 2*time.Duration(float64(r.size.expiring)/speed*float64(time.Second)))
	p := r.fillPlan(s, r.size.expiring)
	p.Mix.Together = load.At(end)
	began := time.Now()
	crew, err := r.hire(ctx, s, p, time.Until(end))
	if err != nil {
		return end, fmt.Errorf("fill: %w", err)
	}
	crew.dismiss()
	if _, err := crew.finish(ctx, startTimeout); err != nil {
		return end, err
	}
	r.progress("  %d leases after %v; they end in %v", r.size.expiring, time.Since(began).Round(time.Second/10), time.Until(end).Round(time.Second))
	return end, nil
}

// fillSpeed is how many leases a second are taken, by a sample that ends by itself before long.
func (r *run) fillSpeed(ctx context.Context, s side) (float64, error) {
	p := r.fillPlan(s, r.size.expiring/20)
	p.Prefix, p.TTL = "sample", r.size.heldTTL
	began := time.Now()
	crew, err := r.hire(ctx, s, p, fillTimeout)
	if err != nil {
		return 0, fmt.Errorf("sample: %w", err)
	}
	speed := float64(r.size.expiring/20) / time.Since(began).Seconds()
	crew.dismiss()
	_, err = crew.finish(ctx, startTimeout)
	return speed, err
}

// others is a small open-loop load beside.
func (r *run) others(s side) load.Plan {
	p := r.planFor(s, load.Flow, "others")
	p.TTL, p.Records = 30*time.Second, r.path("records")
	p.Mix = load.Mix{Clients: int(r.size.othersRate), Leases: 1, Beat: 10 * time.Second, Churn: r.size.othersRate, Streams: 2, Window: fillWindow, Keep: true}
	return p
}

// drain waits until no more than so many leases are left, as the leader counts them, and tells when that was.
func (r *run) drain(ctx context.Context, l *lychgate, most uint64) (time.Time, error) {
	at, err := l.leader(ctx)
	if err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var when time.Time
	err = stage.Await(ctx, "drain", func() (bool, error, error) {
		st, err := load.Status(ctx, l.grpc[at])
		if err != nil {
			return false, err, nil
		}
		when = time.Now()
		left := leases(st)
		return left <= most, fmt.Errorf("%d leases are left", left), nil
	})
	return when, err
}
