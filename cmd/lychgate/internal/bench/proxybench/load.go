package proxybench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

// series are the medians-to-be of one target: a value for each round.
type series struct {
	perSecond, p50, p99, cpu []float64 // 1/s, ms, ms, µs
}

func (s *series) add(o observed) {
	s.perSecond = append(s.perSecond, o.perSecond)
	s.p50 = append(s.p50, figures.MS(o.p50))
	s.p99 = append(s.p99, figures.MS(o.p99))
	s.cpu = append(s.cpu, microseconds(o.cpu))
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// load measures every workload by every protocol with every number of clients.
func (r *run) load(ctx context.Context) error {
	for _, workload := range r.size.workloads {
		for _, protocol := range r.size.protocols {
			for _, clients := range r.size.clients {
				if err := r.loadOf(ctx, workload, protocol, clients); err != nil {
					return fmt.Errorf("%s, %s, %d clients: %w", workload, protocol, clients, err)
				}
			}
		}
	}
	return nil
}

// loadOf measures one of them, the targets in turn, in every second round in the opposite order.
func (r *run) loadOf(ctx context.Context, workload, protocol string, clients int) error {
	j := job{clients: clients, time: r.size.time, args: []string{"-b", builtin[workload], "-M", protocol}}
	var got [targetCount]series
	for round := range r.size.rounds {
		for _, i := range turns(round) {
			o, err := r.pgbench(ctx, r.targets[i], j)
			if err != nil {
				return err
			}
			if workload == "update" {
				r.judge.history += o.processed
			}
			got[i].add(o)
		}
		r.progress("  %s, %s, %d clients, round %d of %d: %s", workload, protocol, clients, round+1, r.size.rounds, lastOf(got))
	}
	r.tell(workload, fmt.Sprintf("%s_%s_c%d", workload, protocol, clients), clients, got)
	return nil
}

// turns are the targets in the order of a round.
func turns(round int) []int {
	order := []int{direct, pgBouncer, ours}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// lastOf tells what the last round has shown.
func lastOf(got [targetCount]series) string {
	last := func(s []float64) float64 { return s[len(s)-1] }
	return fmt.Sprintf("%.0f/s and %.1f µs, PgBouncer %.0f/s and %.1f µs, direct %.0f/s", last(got[ours].perSecond), last(got[ours].cpu),
		last(got[pgBouncer].perSecond), last(got[pgBouncer].cpu), last(got[direct].perSecond))
}

// tell adds the figures of one load.
func (r *run) tell(workload, name string, clients int, got [targetCount]series) {
	cheap, fast := figures.RatioAtMost(1), []figures.Goal{figures.RatioAtLeast(1)}
	if clients < manyClients {
		cheap, fast = figures.RatioAtMost(1.5), nil
	}
	of := func(values func(series) []float64) (mine float64, theirs, without *float64) {
		return figures.Median(values(got[ours])), new(figures.Median(values(got[pgBouncer]))), new(figures.Median(values(got[direct])))
	}
	add := func(name, unit string, values func(series) []float64, goals ...figures.Goal) {
		mine, theirs, without := of(values)
		r.report.AddResult(figures.Result{Name: name, Unit: unit, Value: mine, Peer: theirs, Direct: without}, goals...)
	}
	mine, theirs, _ := of(func(s series) []float64 { return s.cpu })
	r.report.Add("proxy_cpu_us_per_tx_"+name, "us", mine, theirs, cheap)
	add("tps_"+name, "1/s", func(s series) []float64 { return s.perSecond }, fast...)
	add("p50_ms_"+name, "ms", func(s series) []float64 { return s.p50 })
	add("p99_ms_"+name, "ms", func(s series) []float64 { return s.p99 })
	if clients == 1 && workload == "select" { // where something is written, the disk's whims are larger
		p50 := func(i int) float64 { return figures.Median(got[i].p50) * 1000 }
		r.report.Add("added_p50_us_"+name, "us", p50(ours)-p50(direct), new(p50(pgBouncer)-p50(direct)), figures.RatioAtMost(1))
	}
}

// manyClients is from how many clients on the goals for many hold.
const manyClients = 8
