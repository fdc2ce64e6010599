// Package admin is the proxy's own HTTP side: Prometheus metrics, health, and the table of live bindings.
// It shows resource names and client addresses, so it belongs on an address that only operators reach.
package admin

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Metrics are the proxy's counters. No label ever carries a resource or client name: those have no bound.
type Metrics struct {
	rejections       *prometheus.CounterVec
	bindings         *prometheus.GaugeVec
	binds            *prometheus.HistogramVec
	takeovers        *prometheus.CounterVec
	takeoverDuration *prometheus.HistogramVec
	ended            *prometheus.CounterVec
	ready            *prometheus.GaugeVec
	listener         *prometheus.GaugeVec
	headers          *prometheus.CounterVec
	connections      *prometheus.GaugeVec
	maxConnections   *prometheus.GaugeVec
	refused          *prometheus.CounterVec
	watch            watchMetrics
}

// takeoverBuckets are finest around the goal of 20 ms.
var takeoverBuckets = []float64{.001, .002, .005, .01, .015, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewMetrics registers the metrics, those of the Go runtime and of the process included.
// It panics when they are registered already, which is a mistake of the program.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	adapter := []string{"adapter"}
	m := &Metrics{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: rejectionsName,
			Help: "Connections and statements refused by the fence.",
		}, []string{"adapter", "reason"}),
		bindings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lychgate_bindings",
			Help: "Live connections that are bound to a resource under a token.",
		}, adapter),
		binds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lychgate_bind_duration_seconds",
			Help:    "Time that the store took to accept a connection, takeovers included.",
			Buckets: takeoverBuckets,
		}, adapter),
		takeovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lychgate_takeovers_total",
			Help: "Floors raised: a larger token was seen for the first time.",
		}, adapter),
		takeoverDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lychgate_takeover_duration_seconds",
			Help:    "Time from a larger token's arrival to every older session being confirmed gone and the floor raised.",
			Buckets: takeoverBuckets,
		}, adapter),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lychgate_takeover_ended_sessions_total",
			Help: "Sessions of older tokens that takeovers ended.",
		}, adapter),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lychgate_store_ready",
			Help: "1 while the listener's store can decide, else 0.",
		}, []string{"adapter", "listener"}),
		listener: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lychgate_listener_info",
			Help: "Always 1; the labels say what the listener promises and asks for.",
		}, []string{"adapter", "listener", "guarantee", "policy", "unsigned"}),
	}
	m.headers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lychgate_proxy_protocol_refused_total",
		Help: "Connections closed for their header of the PROXY protocol.",
	}, []string{"listener", "fault"})
	m.connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lychgate_connections",
		Help: "Clients that are served, or log in.",
	}, []string{"listener"})
	m.maxConnections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lychgate_connections_max",
		Help: "The listener's max_connections.",
	}, []string{"listener"})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lychgate_connections_refused_total",
		Help: "Clients refused because there were too many, by the limit that had no room.",
	}, []string{"listener", "limit"})
	m.watch = newWatchMetrics(reg)
	reg.MustRegister(m.rejections, m.bindings, m.binds, m.takeovers, m.takeoverDuration, m.ended, m.ready, m.listener, m.headers,
		m.connections, m.maxConnections, m.refused,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Listener says what a listener promises and asks for, as its metric labels show it.
type Listener struct {
	Adapter   string
	Name      string
	Guarantee string
	Policy    gate.Policy
	Unsigned  bool

	MaxConnections int
	Limits         []string // that may refuse a client
}

// Announce makes all series of a listener visible at 0, so that a rate over them is right from the first event.
func (m *Metrics) Announce(l Listener) {
	for _, reason := range gate.Reasons() {
		m.rejections.WithLabelValues(l.Adapter, reason.String())
	}
	m.bindings.WithLabelValues(l.Adapter)
	m.binds.WithLabelValues(l.Adapter)
	m.takeovers.WithLabelValues(l.Adapter)
	m.takeoverDuration.WithLabelValues(l.Adapter)
	m.ended.WithLabelValues(l.Adapter)
	m.ready.WithLabelValues(l.Adapter, l.Name)
	m.watch.announce(l)
	for _, limit := range l.Limits {
		m.refused.WithLabelValues(l.Name, limit)
	}
	m.connections.WithLabelValues(l.Name)
	m.maxConnections.WithLabelValues(l.Name).Set(float64(l.MaxConnections))
	m.listener.DeletePartialMatch(prometheus.Labels{"adapter": l.Adapter, "listener": l.Name}) // what it promised before a reload
	m.listener.WithLabelValues(l.Adapter, l.Name, l.Guarantee, l.Policy.String(), strconv.FormatBool(l.Unsigned)).Set(1)
}

// Seated notes that the connections of a listener have changed by delta.
func (m *Metrics) Seated(listener string, delta int) {
	m.connections.WithLabelValues(listener).Add(float64(delta))
}

// Full notes that a listener has refused a client, because a limit had no room.
func (m *Metrics) Full(listener, limit string) {
	m.refused.WithLabelValues(listener, limit).Inc()
}

// StoreReady notes whether a listener's store can decide.
func (m *Metrics) StoreReady(adapter, listener string, ready bool) {
	v := 0.0
	if ready {
		v = 1
	}
	m.ready.WithLabelValues(adapter, listener).Set(v)
}

// AnnounceHeaderFault makes a series of a listener visible at 0.
func (m *Metrics) AnnounceHeaderFault(listener, fault string) {
	m.headers.WithLabelValues(listener, fault)
}

// HeaderRefused notes that a listener has closed a connection for its PROXY protocol header.
func (m *Metrics) HeaderRefused(listener, fault string) {
	m.headers.WithLabelValues(listener, fault).Inc()
}

var _ gate.Observer = (*Metrics)(nil)

// Refused is part of gate.Observer.
func (m *Metrics) Refused(adapter string, reason gate.Reason) {
	m.rejections.WithLabelValues(adapter, reason.String()).Inc()
}

// Bound is part of gate.Observer.
func (m *Metrics) Bound(adapter string, delta int) {
	m.bindings.WithLabelValues(adapter).Add(float64(delta))
}

// BindTook is part of gate.Observer.
func (m *Metrics) BindTook(adapter string, took time.Duration) {
	m.binds.WithLabelValues(adapter).Observe(took.Seconds())
}

// TookOver is part of gate.Observer.
func (m *Metrics) TookOver(adapter string, took time.Duration, endedOlder int) {
	m.takeovers.WithLabelValues(adapter).Inc()
	m.takeoverDuration.WithLabelValues(adapter).Observe(took.Seconds())
	m.ended.WithLabelValues(adapter).Add(float64(endedOlder))
}

const rejectionsName = "lychgate_fencing_rejections_total"

// Figures are what a gatherer has counted, histograms as count and sum, with the labels of each as name=value.
func Figures(from prometheus.Gatherer) ([]Figure, error) {
	families, err := from.Gather()
	var out []Figure
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			add := func(suffix string, value float64) {
				out = append(out, Figure{Name: family.GetName() + suffix, Labels: strings.Join(labels, " "), Value: value})
			}
			switch {
			case m.GetCounter() != nil:
				add("", m.GetCounter().GetValue())
			case m.GetGauge() != nil:
				add("", m.GetGauge().GetValue())
			case m.GetHistogram() != nil:
				add("_count", float64(m.GetHistogram().GetSampleCount()))
				add("_sum", m.GetHistogram().GetSampleSum())
			}
		}
	}
	return out, err
}
