package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// watchMetrics are about what comes from the coordinator's watch. Metrics has their methods.
type watchMetrics struct {
	connected prometheus.Gauge
	heard     prometheus.Gauge
	resyncs   prometheus.Counter
	eager     *prometheus.CounterVec
	cuts      *prometheus.CounterVec
	waiting   *prometheus.GaugeVec
}

func newWatchMetrics(reg prometheus.Registerer) watchMetrics {
	m := watchMetrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lychgate_watch_connected",
			Help: "1 while the proxy follows what the coordinator grants, else 0.",
		}),
		heard: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lychgate_watch_last_message_timestamp_seconds",
			Help: "When the coordinator was last heard in the watch, which is every five seconds if nothing happens.",
		}),
		resyncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lychgate_watch_resyncs_total",
			Help: "Times that changes were missed and the current holders were looked up, the start included.",
		}),
		eager: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lychgate_eager_takeovers_total",
			Help: "Floors raised on the coordinator's word, before the new holder came; takeovers count them too.",
		}, []string{"adapter"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lychgate_lease_end_cuts_total",
			Help: "Bindings ended because their lease had ended, without a successor.",
		}, []string{"adapter"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lychgate_eager_takeovers_waiting",
			Help: "Resources whose floor is still to be raised, or compared, on the coordinator's word.",
		}, []string{"adapter", "listener"}),
	}
	reg.MustRegister(m.connected, m.heard, m.resyncs, m.eager, m.cuts, m.waiting)
	return m
}

func (m watchMetrics) announce(l Listener) {
	m.eager.WithLabelValues(l.Adapter)
	m.cuts.WithLabelValues(l.Adapter)
	m.waiting.WithLabelValues(l.Adapter, l.Name)
}

// Watching notes whether the coordinator is watched.
func (m *Metrics) Watching(connected bool) {
	v := 0.0
	if connected {
		v = 1
	}
	m.watch.connected.Set(v)
}

// Heard notes a message of the watch.
func (m *Metrics) Heard(at time.Time) {
	m.watch.heard.Set(float64(at.UnixMilli()) / 1000)
}

// Resynced counts a look-up of the current holders.
func (m *Metrics) Resynced() { m.watch.resyncs.Inc() }

// Overtook counts a floor that went up before its holder came.
func (m *Metrics) Overtook(adapter string) { m.watch.eager.WithLabelValues(adapter).Inc() }

// Cut counts bindings that ended with their lease.
func (m *Metrics) Cut(adapter string, n int) { m.watch.cuts.WithLabelValues(adapter).Add(float64(n)) }

// Waiting notes how many floors of a listener are still to be raised.
func (m *Metrics) Waiting(adapter, listener string, n int) {
	m.watch.waiting.WithLabelValues(adapter, listener).Set(float64(n))
}
