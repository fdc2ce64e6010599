package bench

import (
	"context"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// fillTimeout bounds how long a population is filled.
const fillTimeout = 20 * time.Minute

// memory measures what each live lease costs a node: its resident memory with many, less that of the same node before,
// after a warm-up of locks that came and went. The worst node counts.
func (r *run) memory(ctx context.Context) error {
	ours, err := startLychgate(r.children, r.config.Program, r.path("lychgate"), 0, 0)
	if err != nil {
		return err
	}
	used, err := r.memoryOf(ctx, ours, r.size.leases)
	ours.stop()
	if err != nil {
		return err
	}
	resource, client, request := load.Names("bench")
	r.remark("memory: %d leases, ten of a client, the worst node, its resident memory in all and the part that belongs to no file; names as %q, clients as %q, requests as %q",
		r.size.leases, resource, client, request)
	peer, peerAnon, err := r.peerMemory(ctx)
	if err != nil {
		return err
	}
	var most []figures.Goal
	if r.size.full {
		most = []figures.Goal{figures.AtMost(200)}
	}
	r.report.Add("bytes_per_lease", "B", used.All, peer, most...)
	r.report.Add("private_bytes_per_lease", "B", used.Private, peerAnon)
	return nil
}

// peerMemory measures the peer with fewer leases: it takes each by two writes.
func (r *run) peerMemory(ctx context.Context) (all, private *float64, err error) {
	if r.config.Etcd == "" {
		return nil, nil, nil
	}
	theirs, err := startEtcd(r.children, r.config.Etcd, r.path("etcd"))
	if err != nil {
		return nil, nil, err
	}
	defer theirs.stop()
	used, err := r.memoryOf(ctx, theirs, r.size.peerLeases)
	if err != nil {
		return nil, nil, err
	}
	r.remark("memory: etcd has %d leases, with a key each", r.size.peerLeases)
	return new(used.All), new(used.Private), nil
}

// memoryOf is what a lease costs the worst node of a side.
func (r *run) memoryOf(ctx context.Context, s side, leases int) (stage.Resident, error) {
	var worst stage.Resident
	if err := s.awaitReady(ctx); err != nil {
		return worst, err
	}
	if err := r.warm(ctx, s); err != nil {
		return worst, err
	}
	before, err := r.settle(ctx, s)
	if err != nil {
		return worst, err
	}
	p := r.fillPlan(s, leases)
	began := time.Now()
	crew, err := r.hire(ctx, s, p, fillTimeout)
	if err != nil {
		return worst, err
	}
	defer crew.child.Kill()
	r.progress("  %s: %d leases after %v", s.name(), leases, time.Since(began).Round(time.Second/10))
	after, err := r.settle(ctx, s)
	if err != nil {
		return worst, err
	}
	for i := range after {
		worst.All = max(worst.All, (after[i].All-before[i].All)/float64(leases))
		worst.Private = max(worst.Private, (after[i].Private-before[i].Private)/float64(leases))
		r.progress("  %s, node %d: %.0f MB, empty %.0f MB (private: %.0f MB, %.0f MB)",
			s.name(), i+1, after[i].All/1e6, before[i].All/1e6, after[i].Private/1e6, before[i].Private/1e6)
	}
	return worst, nil
}

// warm has locks come and go, over what the leases come over later, so that what a node keeps of past traffic is there
// before too.
func (r *run) warm(ctx context.Context, s side) error {
	p := r.planFor(s, load.Cycles, "warm")
	p.Workers, p.TTL, p.Duration = 256, time.Minute, r.size.warming
	if l, ours := s.(*lychgate); ours {
		p.Kind, p.TTL, p.Records = load.Flow, r.size.heldTTL, ""
		p.Mix = load.Mix{Clients: r.size.leases / 100, Leases: 1, Churn: 2000, Streams: streams, Window: fillWindow}
		crew, err := r.hire(ctx, s, p, startTimeout)
		if err != nil {
			return err
		}
		if _, err := crew.finish(ctx, p.Duration+startTimeout); err != nil {
			return err
		}
		_, err = r.drain(ctx, l, 0)
		return err
	}
	_, _, err := r.work(ctx, s, p, p.Duration+startTimeout)
	return err
}

// fillWindow is how many acquires are under way while a population is filled.
const fillWindow = 2048

// fillPlan is a population that is filled and kept. A client has ten leases.
func (r *run) fillPlan(s side, leases int) load.Plan {
	p := r.planFor(s, load.Fill, "bench")
	p.Workers, p.Count, p.TTL = 256, leases, time.Hour
	p.Mix = load.Mix{Clients: leases / 10, Leases: 10, Streams: streams, Window: fillWindow}
	return p
}

// settle waits until the nodes' memory has stopped to change, and tells it. What was freed goes back to the system bit by
// bit, and what is garbage is seen at the latest by the collection that the Go runtime makes of an idle program every two
// minutes; at the full size that is waited for.
func (r *run) settle(ctx context.Context, s side) ([nodeCount]stage.Resident, error) {
	const step, most = 500 * time.Millisecond, 60
	var now, past [nodeCount]stage.Resident
	still := 0
	if err := stage.Pause(ctx, r.size.idle); err != nil {
		return now, err
	}
	for range most {
		if err := stage.Pause(ctx, step); err != nil {
			return now, err
		}
		changed := false
		for i := range now {
			m, err := stage.ResidentOf(s.node(i).PID())
			if err != nil {
				return now, err
			}
			now[i] = m
			changed = changed || m.All > past[i].All*1.005 || m.All < past[i].All*0.995
		}
		if still++; changed {
			still, past = 0, now
		}
		if still >= r.size.calm {
			break
		}
	}
	return now, nil
}
