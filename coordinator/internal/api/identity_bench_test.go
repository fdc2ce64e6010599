package api

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// BenchmarkAdmit is what it costs a call to be asked who makes it and whether it may, beside the call itself.
func BenchmarkAdmit(b *testing.B) {
	rules, err := access.New(testRules())
	check(b, err)
	for name, security := range map[string]Security{"open": {}, "rules": {Rules: rules}} {
		b.Run(name, func(b *testing.B) {
			s := &Server{requestTimeout: time.Minute, watchman: newWatchman(prometheus.NewRegistry(), nil)}
			s.config.Security, s.config.MaxCalls, s.leave = security, 1000, func() { s.calls.Add(-1) }
			if security.Rules != nil {
				s.callers = func(context.Context) lease.Identity { return "acme:worker" }
			}
			info := &grpc.UnaryServerInfo{FullMethod: lockpb.Locks_Renew_FullMethodName}
			next := func(context.Context, any) (any, error) { return nil, nil }
			b.ReportAllocs()
			for b.Loop() {
				parent, end := context.WithCancel(b.Context())
				ctx, _ := s.await(parent, &tap.Info{FullMethodName: info.FullMethod})
				ctx = withCaller(ctx, &caller{identity: "acme:worker"})
				if _, err := s.admitUnary(ctx, nil, info, next); err != nil {
					b.Fatal(err)
				}
				end()
			}
		})
	}
}
