package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// probers is how many ask for locks while the leader is killed.
const probers = 16

// failover kills the leader, again and again, and measures until the next grant. Both sides have their default timing.
// Leases that are held meanwhile must not be lost.
func (r *run) failover(ctx context.Context) error {
	got := make([]cycled, len(r.sides)) // in p50
	for round := range r.size.failovers {
		for i, s := range r.sides {
			took, err := r.failOnce(ctx, s, round)
			if err != nil {
				return err
			}
			got[i].p50 = append(got[i].p50, figures.MS(took))
			r.progress("  round %d of %d, %s: %.0f ms, no lease lost of %d", round+1, r.size.failovers, s.name(), figures.MS(took), r.size.held)
		}
	}
	var half []figures.Goal
	if r.size.full {
		half = []figures.Goal{figures.RatioAtMost(0.5)}
	}
	r.compare("failover_ms", "ms", got, func(c cycled) []float64 { return c.p50 }, half...)
	return nil
}

func (r *run) failOnce(ctx context.Context, s side, round int) (time.Duration, error) {
	p := r.planFor(s, load.Cycles, r.prefix(fmt.Sprintf("failover-%d", round)))
	p.Workers, p.Hold, p.TTL, p.Attempt = probers, r.size.held, r.size.heldTTL, time.Second
	p.Records = r.path("records")
	crew, err := r.hire(ctx, s, p, startTimeout)
	if err != nil {
		return 0, err
	}
	if err := stage.Pause(ctx, r.size.before); err != nil {
		return 0, err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return 0, err
	}
	killed := load.Now()
	s.kill(leader)
	if err := stage.Pause(ctx, r.size.after); err != nil {
		return 0, err
	}
	crew.dismiss()
	records, sum, err := r.harvest(ctx, crew, s, p, startTimeout)
	switch {
	case err != nil:
		return 0, err
	case sum.Lost > 0 && s != r.sides[0]:
		r.remark("failover: %s lost %d of %d live leases with its leader", s.name(), sum.Lost, p.Hold)
	case sum.Lost > 0:
		return 0, fmt.Errorf("%w: %s lost %d of %d live leases with its leader", ErrViolated, s.name(), sum.Lost, p.Hold)
	}
	if err := s.restart(leader); err != nil {
		return 0, err
	}
	if err := s.awaitReady(ctx); err != nil {
		return 0, err
	}
	return firstGrant(records, killed)
}

// quiet is the shortest silence of all probers that counts as the outage. Answers that were on their way when the leader
// was killed come within less.
const quiet = int64(30 * time.Millisecond)

// firstGrant is how long after the kill the first lock was granted behind the silence. Without a silence it is the first
// grant that was asked for after the kill.
func firstGrant(records []load.Record, killed int64) (time.Duration, error) {
	slices.SortFunc(records, func(a, b load.Record) int { return cmp.Compare(a.Granted, b.Granted) })
	before := killed
	for _, r := range records {
		if r.Granted <= killed {
			continue
		}
		if r.Granted-before >= quiet {
			return time.Duration(r.Granted - killed), nil
		}
		before = r.Granted
	}
	for _, r := range records {
		if r.Asked > killed {
			return time.Duration(r.Granted - killed), nil
		}
	}
	return 0, errors.New("nothing was granted after the leader was killed")
}

// prefix is that of the names of a round, which no other round has.
func (r *run) prefix(name string) string {
	r.files++
	return fmt.Sprintf("bench/%d/%s-%d", load.Now()/1e6, name, r.files)
}
