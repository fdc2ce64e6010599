package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

// cycled is what one round of cycles gave.
type cycled struct{ perSecond, p50, p99 []float64 }

// cycles measures lock and unlock cycles, and how long the acquires take.
func (r *run) cycles(ctx context.Context) error {
	for _, n := range r.size.workers {
		got := make([]cycled, len(r.sides))
		for round := range r.size.rounds {
			for i, s := range r.sides {
				if err := r.cycleRound(ctx, s, &got[i], n, 0, fmt.Sprintf("w%d-%d", n, round)); err != nil {
					return err
				}
				r.progress("  %d workers, round %d of %d, %s: %.0f/s, acquire p50 %.2f ms, p99 %.2f ms",
					n, round+1, r.size.rounds, s.name(), last(got[i].perSecond), last(got[i].p50), last(got[i].p99))
			}
		}
		var rate, tail []figures.Goal
		if r.size.full && n == 512 {
			rate, tail = []figures.Goal{figures.RatioAtLeast(8)}, []figures.Goal{figures.RatioAtMost(0.25)}
		}
		r.compare(fmt.Sprintf("lock_cycles_per_s_w%d", n), "1/s", got, func(c cycled) []float64 { return c.perSecond }, rate...)
		r.compare(fmt.Sprintf("acquire_p50_ms_w%d", n), "ms", got, func(c cycled) []float64 { return c.p50 })
		r.compare(fmt.Sprintf("acquire_p99_ms_w%d", n), "ms", got, func(c cycled) []float64 { return c.p99 }, tail...)
	}
	return nil
}

// contended measures cycles of workers that want the same locks.
func (r *run) contended(ctx context.Context) error {
	workers, locks := r.size.contenders, r.size.locks
	got := make([]cycled, len(r.sides))
	for round := range r.size.rounds {
		for i, s := range r.sides {
			if err := r.cycleRound(ctx, s, &got[i], workers, locks, fmt.Sprintf("contended-%d", round)); err != nil {
				return err
			}
			r.progress("  round %d of %d, %s: %.0f/s, acquire p99 %.1f ms", round+1, r.size.rounds, s.name(), last(got[i].perSecond), last(got[i].p99))
		}
	}
	r.compare(fmt.Sprintf("contended_cycles_per_s_w%d_l%d", workers, locks), "1/s", got, func(c cycled) []float64 { return c.perSecond })
	return nil
}

func last(v []float64) float64 { return v[len(v)-1] }

// compare reports the medians of both sides.
func (r *run) compare(name, unit string, got []cycled, of func(cycled) []float64, goals ...figures.Goal) {
	var peer *float64
	if len(got) > 1 {
		peer = new(figures.Median(of(got[1])))
	}
	r.report.Add(name, unit, figures.Median(of(got[0])), peer, goals...)
}

// cycleRound measures one side once.
func (r *run) cycleRound(ctx context.Context, s side, got *cycled, workers, locks int, prefix string) error {
	p := r.planFor(s, load.Cycles, r.prefix(prefix))
	p.Workers, p.Resources, p.TTL = workers, locks, 30*time.Second
	p.WarmUp, p.Duration = r.size.warmUp, r.size.cycling
	records, sum, err := r.work(ctx, s, p, p.WarmUp+p.Duration+startTimeout)
	if err != nil {
		return err
	}
	if sum.Fails > 0 {
		return fmt.Errorf("%s: %d calls failed: %s", s.name(), sum.Fails, sum.Fail)
	}
	cycles, acquires := measured(records, sum.From, sum.From+int64(p.Duration))
	got.perSecond = append(got.perSecond, float64(cycles)/p.Duration.Seconds())
	got.p50 = append(got.p50, figures.MS(figures.Quantile(acquires, 0.5)))
	got.p99 = append(got.p99, figures.MS(figures.Quantile(acquires, 0.99)))
	return nil
}

// measured counts the cycles that ended in a time, and tells how long the acquires took that began in it.
func measured(records []load.Record, from, to int64) (cycles int, acquires []time.Duration) {
	for _, r := range records {
		if r.Answered >= from && r.Answered < to {
			cycles++
		}
		if r.Asked >= from && r.Asked < to {
			acquires = append(acquires, time.Duration(r.Granted-r.Asked))
		}
	}
	return cycles, acquires
}

// handover measures from each release to the grant that follows it.
func (r *run) handover(ctx context.Context) error {
	got := make([]cycled, len(r.sides))
	for round := range r.size.rounds {
		for i, s := range r.sides {
			p := r.planFor(s, load.Handover, r.prefix(fmt.Sprintf("handover-%d", round)))
			p.Workers, p.TTL = r.size.waiters, 60*time.Second
			records, sum, err := r.work(ctx, s, p, 3*time.Minute)
			if err != nil {
				return err
			}
			if sum.Fails > 0 || len(records) != p.Workers+1 {
				return fmt.Errorf("%s: of %d waiters %d were granted, %d calls failed: %s", s.name(), p.Workers, len(records)-1, sum.Fails, sum.Fail)
			}
			took := handovers(records)
			got[i].p50 = append(got[i].p50, figures.MS(figures.Quantile(took, 0.5)))
			got[i].p99 = append(got[i].p99, figures.MS(figures.Quantile(took, 0.99)))
			r.progress("  %d waiters, round %d of %d, %s: p50 %.2f ms, p99 %.2f ms", p.Workers, round+1, r.size.rounds, s.name(), last(got[i].p50), last(got[i].p99))
		}
	}
	var tail []figures.Goal
	if r.size.full {
		tail = []figures.Goal{figures.AtMost(10)}
	}
	r.compare("handover_p50_ms", "ms", got, func(c cycled) []float64 { return c.p50 })
	r.compare("handover_p99_ms", "ms", got, func(c cycled) []float64 { return c.p99 }, tail...)
	return nil
}

// handovers are the times from each release to the next grant.
func handovers(records []load.Record) []time.Duration {
	slices.SortFunc(records, func(a, b load.Record) int { return int(a.Granted - b.Granted) })
	var took []time.Duration
	for i := range records[1:] {
		took = append(took, time.Duration(records[i+1].Granted-records[i].Released))
	}
	return took
}
