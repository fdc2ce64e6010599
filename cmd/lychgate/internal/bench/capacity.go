package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// streams is how many sessions the clients of a capacity run share, as they do behind gateways or in application servers.
const streams = 8

// capacityA is the first target: with one replica gone and snapshots being written.
func (r *run) capacityA(ctx context.Context) error {
	ours, err := r.startAlone(ctx, 0, 0)
	if err != nil {
		return err
	}
	defer ours.stop()
	leader, err := ours.leader(ctx)
	if err != nil {
		return err
	}
	down := (leader + 1) % nodeCount
	ours.kill(down)
	c := r.size.capacityA
	before := snapshots(ours, down)
	var saving saver
	stop := saving.save(ctx, ours.grpc[leader])
	sum, err := r.flow(ctx, ours, c, true)
	stop()
	if err != nil {
		return err
	}
	if saving.err != nil {
		return fmt.Errorf("snapshot: %w", saving.err)
	}
	taken := 0
	for folder := range snapshots(ours, down) {
		if !before[folder] {
			taken++
		}
	}
	r.remark("capacity-a: node %d was killed with SIGKILL before; meanwhile the others wrote %d snapshots for their logs, and the leader %d of %.1f MB for a backup; calls over %s",
		down+1, taken, saving.done, float64(saving.bytes)/1e6/float64(max(1, saving.done)), sum.Wire)
	var rate, tail, none []figures.Goal
	if r.size.full {
		rate, tail, none = []figures.Goal{figures.AtLeast(0.99 * c.operations())}, []figures.Goal{figures.AtMost(200)}, []figures.Goal{figures.AtMost(0)}
	}
	r.report.Add("capacity_a_ops_per_s", "1/s", perSecond(sum), nil, rate...)
	r.report.Add("capacity_a_acquire_p99_ms", "ms", figures.MS(sum.Latencies["acquire"].P99), nil, tail...)
	r.report.Add("capacity_a_renew_p99_ms", "ms", figures.MS(sum.Latencies["renew"].P99), nil)
	r.report.Add("capacity_a_lost", "1", float64(sum.Lost), nil, none...)
	r.report.Add("capacity_a_failed", "1", float64(sum.Fails), nil, none...)
	return nil
}

// capacityB is the second target: many clients with short leases.
func (r *run) capacityB(ctx context.Context) error {
	ours, err := r.startAlone(ctx, 0, 0)
	if err != nil {
		return err
	}
	defer ours.stop()
	sum, err := r.flow(ctx, ours, r.size.capacityB, false)
	if err != nil {
		return err
	}
	r.tellB("capacity", sum)
	return nil
}

// Bounds of the delay between the nodes, one way.
const (
	leastDelay = time.Millisecond
	mostDelay  = 2 * time.Millisecond
)

// capacityDelay is the second target with a distance between the nodes, and what they send each other.
func (r *run) capacityDelay(ctx context.Context) error {
	ours, err := r.startAlone(ctx, leastDelay, mostDelay)
	if err != nil {
		return err
	}
	defer ours.stop()
	watch := &traffic{relays: ours.relays}
	stop := watch.sample(ctx)
	sum, err := r.flow(ctx, ours, r.size.capacityB, false)
	stop()
	if err != nil {
		return err
	}
	r.tellB("capacity_delay", sum)
	var below []figures.Goal
	if r.size.full {
		below = []figures.Goal{figures.AtMost(63)}
	}
	r.report.Add("replication_mb_per_s", "MB/s", watch.between(sum.From, sum.To), nil, below...)
	return nil
}

// tellB reports a run of the second target.
func (r *run) tellB(name string, sum load.Summary) {
	c := r.size.capacityB
	r.remark("%s: %d clients with %d leases share %d streams, %s; %.0f of %.0f operations a second are renewals, one heartbeat a client every %v",
		name, c.clients, c.leases, streams, sum.Wire, float64(c.clients*c.leases)/c.beat.Seconds(), c.operations(), c.beat)
	var rate, tail, none []figures.Goal
	if r.size.full {
		rate, tail, none = []figures.Goal{figures.AtLeast(0.99 * c.operations())}, []figures.Goal{figures.AtMost(50)}, []figures.Goal{figures.AtMost(0)}
	}
	worst := time.Duration(0)
	for _, l := range sum.Latencies {
		worst = max(worst, l.P99)
	}
	r.report.Add(name+"_ops_per_s", "1/s", perSecond(sum), nil, rate...)
	r.report.Add(name+"_p99_ms", "ms", figures.MS(worst), nil, tail...)
	r.report.Add(name+"_acquire_p50_ms", "ms", figures.MS(sum.Latencies["acquire"].P50), nil)
	r.report.Add(name+"_acquire_p99_ms", "ms", figures.MS(sum.Latencies["acquire"].P99), nil)
	r.report.Add(name+"_release_p50_ms", "ms", figures.MS(sum.Latencies["release"].P50), nil)
	r.report.Add(name+"_lost", "1", float64(sum.Lost), nil, none...)
	r.report.Add(name+"_failed", "1", float64(sum.Fails), nil, none...)
}

func perSecond(sum load.Summary) float64 {
	return float64(sum.Operations) / time.Duration(sum.To-sum.From).Seconds()
}

// startAlone starts a cluster of ours that has the machine to itself.
func (r *run) startAlone(ctx context.Context, least, most time.Duration) (*lychgate, error) {
	ours, err := startLychgate(r.children, r.config.Program, r.path("lychgate"), least, most)
	if err != nil {
		return nil, err
	}
	if err := ours.awaitReady(ctx); err != nil {
		ours.stop()
		return nil, err
	}
	return ours, nil
}

// flow fills a population and has it live for the measured time.
func (r *run) flow(ctx context.Context, s side, c capacity, single bool) (load.Summary, error) {
	p := r.planFor(s, load.Flow, "bench")
	p.TTL, p.WarmUp, p.Duration = c.ttl, c.warmUp, c.time
	p.Mix = load.Mix{Clients: c.clients, Leases: c.leases, Beat: c.beat, Single: single, Churn: c.churn, Streams: streams, Window: fillWindow, Limit: r.size.fillLimit}
	began := time.Now()
	crew, err := r.hire(ctx, s, p, fillTimeout)
	if err != nil {
		return load.Summary{}, err
	}
	r.progress("  %d leases wanted, %v; now %.0f operations a second for %v", c.clients*c.leases, time.Since(began).Round(time.Second/10), c.operations(), p.WarmUp+p.Duration)
	sum, err := crew.finish(ctx, p.WarmUp+p.Duration+startTimeout)
	if err != nil {
		return sum, err
	}
	for _, class := range []string{"acquire", "release", "renew"} {
		l := sum.Latencies[class]
		r.progress("  %s: %d, p50 %.1f ms, p99 %.1f ms, most %.1f ms", class, l.Count, figures.MS(l.P50), figures.MS(l.P99), figures.MS(l.Max))
	}
	r.progress("  %.0f operations a second, %d lost, %s, over %s", perSecond(sum), sum.Lost, failures(sum.Fails, sum.Fail), sum.Wire)
	if sum.Missing > 0 {
		r.remark("%d of %d leases were not there after %v, so it was measured without them", sum.Missing, c.clients*c.leases, r.size.fillLimit)
	}
	if sum.Fails > 0 {
		r.remark("%d calls failed, the first with: %s", sum.Fails, sum.Fail)
	}
	return sum, nil
}

// leases are the live leases of all groups.
func leases(st *lockpb.StatusResponse) uint64 {
	if len(st.GetGroups()) == 0 {
		return st.GetLeases()
	}
	var n uint64
	for _, g := range st.GetGroups() {
		n += g.GetLeases()
	}
	return n
}

// failures says how many calls failed, and how one of them did.
func failures(n int, how string) string {
	text := strconv.Itoa(n) + " failed"
	if how != "" {
		text += " (" + how + ")"
	}
	return text
}
