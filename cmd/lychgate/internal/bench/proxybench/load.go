package proxybench

import (
	"context"
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

// load measures every workload by every protocol with every number of clients.
func (r *run) load(ctx context.Context) error {
	if err := r.warm(ctx, slices.Max(r.size.clients)); err != nil {
		return err
	}
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

// warm has all clients come by once: PgBouncer opens connections to the server one after the other, once there is a first
// statement, and keeps them. That is not to happen while it is measured.
func (r *run) warm(ctx context.Context, clients int) error {
	for i, t := range r.targets {
		ticket := ""
		if i == ours {
			ticket = r.lease.Ticket()
		}
		conns, err := connectMany(ctx, t, ticket, clients)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		closeAll(ctx, conns)
	}
	return nil
}

// loadOf measures one of them, the targets in turn, in every second round in the opposite order.
func (r *run) loadOf(ctx context.Context, workload, protocol string, clients int) error {
	j := job{clients: clients, time: r.size.time, history: workload == "update", args: []string{"-b", builtin[workload], "-M", protocol}}
	var got [targetCount]series
	for round := range r.size.rounds {
		for _, i := range turns(round) {
			if i == direct && r.size.less && clients > 1 {
				continue
			}
			o, err := r.pgbench(ctx, r.targets[i], j)
			if err != nil {
				return err
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
	text := fmt.Sprintf("%.0f/s and %.1f µs, PgBouncer %.0f/s and %.1f µs", got[ours].last(perSecond), got[ours].last(cpuMicros),
		got[pgBouncer].last(perSecond), got[pgBouncer].last(cpuMicros))
	if got[direct].any() {
		text += fmt.Sprintf(", direct %.0f/s", got[direct].last(perSecond))
	}
	return text
}

// manyClients is from how many clients on the goals for many hold.
const manyClients = 8

// tell adds the figures of one load.
func (r *run) tell(workload, name string, clients int, got [targetCount]series) {
	cheap, fast := figures.RatioAtMost(1), []figures.Goal{figures.RatioAtLeast(1)}
	if clients < manyClients {
		cheap, fast = figures.RatioAtMost(1.5), nil
	}
	r.compare("proxy_cpu_us_per_tx_"+name, "us", got, cpuMicros, cheap)
	r.compare("tps_"+name, "1/s", got, perSecond, fast...)
	r.compare("p50_ms_"+name, "ms", got, p50MS)
	r.compare("p99_ms_"+name, "ms", got, p99MS)
	if clients == 1 && workload == "select" { // where something is written, the disk's whims are larger
		added := func(i int) float64 { return (got[i].median(p50MS) - got[direct].median(p50MS)) * 1000 }
		r.report.Add("added_p50_us_"+name, "us", added(ours), new(added(pgBouncer)), figures.RatioAtMost(1))
	}
}

// compare adds the medians of one figure, also of the database itself where it was measured and has such a figure: there is
// no processor time without a process in between.
func (r *run) compare(name, unit string, got [targetCount]series, f figure, goals ...figures.Goal) {
	x := figures.Result{Name: name, Unit: unit, Value: got[ours].median(f), Peer: new(got[pgBouncer].median(f))}
	if f != cpuMicros && got[direct].any() {
		x.Direct = new(got[direct].median(f))
	}
	r.report.AddResult(x, goals...)
}
