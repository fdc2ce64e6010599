package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// operation names a method of the API in metrics.
type operation string

const (
	opAcquire operation = "acquire"
	opRenew   operation = "renew"
	opRelease operation = "release"
	opCancel  operation = "cancel"
	opBreak   operation = "break"
	opGet     operation = "get"
	opList    operation = "list"
	opAdmin   operation = "admin" // an operator's; not measured
	opHot     operation = "hot"
	opWatch   operation = "watch" // has no latency
)

// The outcomes of a call, as they stand in metrics. Resource names never do.
const (
	outcomeGranted  = "granted"
	outcomeDone     = "done" // of a call that is not an acquire
	outcomeTimeout  = "timeout"
	outcomeConflict = "conflict"
	outcomeDeadlock = "deadlock"
	outcomeRefused  = "refused"
	outcomeUnknown  = "unknown"
)

// latencies are the bounds, in seconds, of how long a call takes: from a commit on a fast disk to a long wait.
var latencies = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300}

// durations are the bounds, in seconds, of how long leases are held and waits last: up to a day.
var durations = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}

// Metrics are the figures of one node. The node's registry is the caller's, so that several
// nodes can live in one process.
type Metrics struct {
	registerer prometheus.Registerer

	calls           map[operation]*prometheus.HistogramVec
	renewalFailures *prometheus.CounterVec
	commit          prometheus.Histogram
	batchCommands   prometheus.Histogram
	batchBytes      prometheus.Histogram
	entriesFailed   prometheus.Counter
	refusedQueue    prometheus.Counter
	leader          *prometheus.GaugeVec
	elections       prometheus.Counter
	election        prometheus.Histogram
	ended           [lock.EndRecovered + 1]prometheus.Counter // by cause, like holds: leases end by the hundred thousand
	grants          prometheus.Counter
	auditDropped    prometheus.Counter
	holds           [lock.EndRecovered + 1]prometheus.Observer
	waits           *prometheus.HistogramVec
	resyncs         prometheus.Counter
}

// NewMetrics registers the figures.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{registerer: registerer, calls: map[operation]*prometheus.HistogramVec{}}
	outcomes := []string{outcomeDone, outcomeRefused, outcomeUnknown}
	for _, op := range []operation{opAcquire, opRenew, opHeartbeat, opRelease, opCancel, opBreak, opGet, opList, opHot} {
		m.calls[op] = histogramVec(string(op)+"_duration_seconds", "Time from a client's "+string(op)+" to its answer, waiting included.", latencies, "outcome")
		for _, outcome := range outcomes {
			if op != opAcquire || outcome != outcomeDone {
				m.calls[op].WithLabelValues(outcome)
			}
		}
		registerer.MustRegister(m.calls[op])
	}
	for _, outcome := range []string{outcomeGranted, outcomeTimeout, outcomeConflict, outcomeDeadlock} {
		m.calls[opAcquire].WithLabelValues(outcome)
	}
	m.renewalFailures = counterVec("renewal_failures_total", "Renewals that clients asked this node for and that failed.", "reason")
	m.commit = histogram("commit_duration_seconds", "Time from the stamp of a log entry to its result, on the leader.", latencies)
	m.batchCommands = histogram("batch_commands", "Commands in one log entry.", prometheus.ExponentialBuckets(1, 2, 12))
	m.batchBytes = histogram("batch_bytes", "Size of one log entry.", prometheus.ExponentialBuckets(64, 4, 9))
	m.entriesFailed = counter("entries_failed_total", "Log entries that this node proposed and got no result for.")
	m.refusedQueue = counter("commands_refused_total", "Commands turned away before they were proposed: the queue is full, or another node leads.")
	m.leader = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lychgate", Name: "leader", Help: "1 on the node that leads and serves the group, else 0."}, []string{"group"})
	m.elections = counter("elections_total", "Leaders that this node has seen begin.")
	m.election = histogram("election_duration_seconds", "Time that this node knew of no leader.", latencies)
	ended := counterVec("leases_ended_total", "Leases that this replica has seen end.", "cause")
	m.grants = counter("leases_granted_total", "Leases that this replica has seen begin.")
	m.auditDropped = counter("audit_dropped_total", "Log entries whose audit lines could not be written.")
	holds := histogramVec("lease_held_seconds", "Lease time from a lease's grant to its end, of leases that this replica has seen end.", durations, "cause")
	m.waits = histogramVec("wait_seconds", "Lease time that acquires stood in a queue, of waits that this replica has seen begin and end.", durations, "outcome")
	m.resyncs = counter("watch_resyncs_total", "Times that a watcher was told that it had missed changes.")
	registerer.MustRegister(m.renewalFailures, m.commit, m.batchCommands, m.batchBytes, m.entriesFailed, m.refusedQueue,
		m.leader, m.elections, m.election, ended, m.grants, m.auditDropped, holds, m.waits, m.resyncs)
	for _, cause := range []lock.EndCause{
		lock.EndReleased, lock.EndExpired, lock.EndUnclaimed, lock.EndCancelled, lock.EndBroken, lock.EndRecovered,
	} {
		m.ended[cause] = ended.WithLabelValues(cause.String())
		m.holds[cause] = holds.WithLabelValues(cause.String())
	}
	return m
}

// watch adds the figures that are read from the groups when somebody asks.
func (m *Metrics) watch(shards []*shard) {
	for _, sh := range shards {
		m.watchOne(sh)
	}
}

func (m *Metrics) watchOne(sh *shard) {
	info, g := sh.info, sh.group
	labels := prometheus.Labels{"group": strconv.Itoa(int(sh.number))}
	gauge := func(name, help string, value func() float64) {
		m.registerer.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: "lychgate", Name: name, Help: help, ConstLabels: labels}, value))
	}
	gauge("active_leases", "Leases held now, in this replica.", func() float64 { return float64(info().Leases) })
	gauge("waiters", "Acquires in the queues, in this replica.", func() float64 { return float64(info().Waiters) })
	gauge("remembered_requests", "Acquires that a retry would still be recognised as.", func() float64 { return float64(info().Requests) })
	gauge("applied_index", "Log index of the last entry applied.", func() float64 { return float64(info().Index) })
	gauge("lease_time_seconds", "The cluster's lease clock.", func() float64 { return time.Duration(info().Now).Seconds() })
	gauge("queued_commands", "Commands waiting to be proposed.", func() float64 { return float64(g.Status().Queued) })
	gauge("disk_unusable", "1 while the node does not take part because its disk hangs, is full or has failed.", func() float64 {
		if g.Status().Disk != "" {
			return 1
		}
		return 0
	})
	gauge("raft_term", "Current term.", func() float64 { return float64(g.Status().Term) })
}

// follow adds the figures of the watches.
func (m *Metrics) follow(f *feed.Feed) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "lychgate", Name: "watchers", Help: "Watches that this node serves.",
	}, func() float64 { return float64(f.Watchers()) }))
}

func (m *Metrics) held(cause lock.EndCause, d time.Duration) { m.holds[cause].Observe(d.Seconds()) }

func (m *Metrics) waited(outcome string, d time.Duration) {
	m.waits.WithLabelValues(outcome).Observe(d.Seconds())
}

// called counts a call that a client made to this node.
func (m *Metrics) called(op operation, refused *refusal, took time.Duration) {
	m.calls[op].WithLabelValues(outcome(op, refused)).Observe(took.Seconds())
	if op == opRenew && refused != nil {
		m.renewalFailures.WithLabelValues(reasonName(refused.reason())).Inc()
	}
}

func outcome(op operation, refused *refusal) string {
	switch {
	case refused == nil && op == opAcquire:
		return outcomeGranted
	case refused == nil:
		return outcomeDone
	case refused.maybe():
		return outcomeUnknown
	}
	switch refused.reason() {
	case lockpb.Reason_WAIT_TIMEOUT:
		return outcomeTimeout
	case lockpb.Reason_REASON_HELD, lockpb.Reason_ALREADY_HELD, lockpb.Reason_LOCK_DELAYED:
		return outcomeConflict
	case lockpb.Reason_DEADLOCK:
		return outcomeDeadlock
	default:
		return outcomeRefused
	}
}

// Applied counts what the log decided; entries from before the node started were counted then.
func (m *Metrics) Applied(a group.Applied) {
	if a.Replayed {
		return
	}
	for _, event := range a.Events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			m.grants.Inc()
		case lock.LeaseEnded:
			m.ended[e.Cause].Inc()
		case lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.WaitEnded, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted,
			lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
		}
	}
}

// AuditDropped counts entries that are missing in the audit log.
func (m *Metrics) AuditDropped(entries int) { m.auditDropped.Add(float64(entries)) }

// EntryCommitted implements group.Observer.
func (m *Metrics) EntryCommitted(commands, bytes int, took time.Duration) {
	m.commit.Observe(took.Seconds())
	m.batchCommands.Observe(float64(commands))
	m.batchBytes.Observe(float64(bytes))
}

// EntryFailed implements group.Observer.
func (m *Metrics) EntryFailed(group.Kind) { m.entriesFailed.Inc() }

// CommandRefused implements group.Observer.
func (m *Metrics) CommandRefused(group.Kind) { m.refusedQueue.Inc() }

// Group is the observer of one group.
func (m *Metrics) Group(number uint16) group.Observer {
	leader := m.leader.WithLabelValues(strconv.Itoa(int(number)))
	leader.Set(0)
	return groupMetrics{m, leader}
}

// groupMetrics are the figures of a node as one of its groups feeds them.
type groupMetrics struct {
	*Metrics
	leader prometheus.Gauge
}

// LeaderChanged implements group.Observer.
func (m groupMetrics) LeaderChanged(leader string, self bool, without time.Duration) {
	m.leader.Set(0)
	if self {
		m.leader.Set(1)
	}
	if leader == "" {
		return
	}
	m.elections.Inc()
	if without > 0 {
		m.election.Observe(without.Seconds())
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lychgate", Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lychgate", Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "lychgate", Name: name, Help: help, Buckets: buckets})
}

func histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "lychgate", Name: name, Help: help, Buckets: buckets}, labels)
}
