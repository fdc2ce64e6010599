package api

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// BenchmarkExpire is what watches and figures make of leases that expire, while their replica waits.
func BenchmarkExpire(b *testing.B) {
	const each = 2500
	metrics := NewMetrics(prometheus.NewRegistry())
	journal := NewJournal(1, metrics)
	var events []lock.Event
	for i := range each {
		events = append(events, lock.LeaseEnded{
			Holder: lock.Holder{
				Resource: lease.Resource(fmt.Sprintf("bench/tenant-%04d/order/%010d", i, i)), Token: lease.Token(i + 1), Mode: lease.Exclusive,
				Identity: "me", Client: "client",
			},
			Cause: lock.EndExpired, Request: "request",
		})
	}
	b.ReportAllocs()
	index := uint64(0)
	for b.Loop() {
		index++
		a := group.Applied{Index: index, Now: lock.LeaseTime(index), Events: events}
		metrics.Applied(a)
		journal.Applied(0, a)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/lease")
}
