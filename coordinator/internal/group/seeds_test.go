package group

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/simulate"
)

var (
	simHours = flag.Float64("sim.hours", 100, "hours to simulate")
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed alone, and tell its story")
	simFirst = flag.Uint64("sim.first", 1, "the first seed")
)

// ticking is the clock of this package in a simulation.
type ticking struct{ clock leaseClock }

func (t *ticking) Stamp(at time.Duration, committed lock.LeaseTime) lock.LeaseTime {
	return t.clock.stamp(at, committed)
}

func ofSeed(seed uint64) simulate.Config {
	return simulate.Config{
		Seed: seed, Span: time.Hour, Limit: clockLimit,
		Clock: func(state lock.LeaseTime, at, limit time.Duration) simulate.Clock {
			return &ticking{startLeaseClock(state, at, limit)}
		},
	}
}

// TestSeeds runs one seed after the other, an hour each, until the hours are over.
func TestSeeds(t *testing.T) {
	if *simSeed != 0 {
		o := simulate.Run(ofSeed(*simSeed))
		if o.Err != nil {
			t.Fatal(simulate.Explain(ofSeed(*simSeed), o))
		}
		t.Logf("seed %d finds nothing; trace %016x, faults drawn: %v", *simSeed, o.Hash, o.Kinds)
		return
	}
	var total simulate.Total
	said := time.Now()
	for seed := *simFirst; total.Span.Hours() < *simHours; seed++ {
		o := simulate.Run(ofSeed(seed))
		if o.Err != nil {
			t.Fatalf("seed %d: %s\nagain: make sim SEED=%d", seed, simulate.Explain(ofSeed(seed), o), seed)
		}
		total.Add(o)
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			fmt.Fprintln(os.Stderr, total.Line())
		}
	}
	total.Print(os.Stdout)
	if err := total.Enough(); err != nil {
		t.Error(err)
	}
}

// TestSeedsReplay runs 100 seeds twice: the same happens.
func TestSeedsReplay(t *testing.T) {
	hashes := make([]uint64, 0, 100)
	for round := range 2 {
		for seed := range uint64(100) {
			c := ofSeed(1000 + seed)
			c.Span = 10 * time.Minute
			h := simulate.Run(c).Hash
			switch {
			case round == 0 && slices.Contains(hashes, h):
				t.Fatalf("two seeds have the trace %x", h)
			case round == 0:
				hashes = append(hashes, h)
			case hashes[seed] != h:
				t.Fatalf("seed %d has the trace %x and then %x", c.Seed, hashes[seed], h)
			}
		}
	}
}
