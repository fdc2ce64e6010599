package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// BenchmarkCycle is what the library itself costs of a lock and unlock cycle: its calls go into a session behind which there is
// no node and no network, and which answers what has gathered.
func BenchmarkCycle(b *testing.B) {
	for _, workers := range []int{1, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchmarkCycle(b, workers) })
	}
}

func benchmarkCycle(b *testing.B, workers int) {
	c, err := Dial(Config{Addrs: []string{"127.0.0.1:1"}})
	if err != nil {
		b.Fatal(err)
	}
	s := newSession(c.root, "127.0.0.1:1", c.nodes)
	c.nodes.sessions[s.addr], c.nodes.leaders = s, []string{s.addr}
	c.asOf.learn(0, 1, c.clock.Now())
	var node sync.WaitGroup
	node.Go(func() { answerAll(s) })
	b.Cleanup(func() {
		_ = c.Close()
		node.Wait()
	})
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			resource := fmt.Sprintf("bench/w%d", w)
			for left.Add(-1) >= 0 {
				l, err := c.Acquire(context.Background(), resource, NoTicket())
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// answerAll is a node that grants and releases whatever it is asked.
func answerAll(s *session) {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		for message := s.take(); message != nil; message = s.take() {
			raw, err := proto.Marshal(answersTo(message))
			var got lockpb.SessionResponse
			if err == nil {
				err = proto.Unmarshal(raw, &got)
			}
			if err != nil {
				panic(err)
			}
			s.deliver(&got)
		}
	}
}

func answersTo(message []byte) *lockpb.SessionResponse {
	var request lockpb.SessionRequest
	if err := proto.Unmarshal(message, &request); err != nil {
		panic(err)
	}
	response := new(lockpb.SessionResponse)
	for _, call := range request.GetCalls() {
		a := &lockpb.Answer{Id: call.GetId()}
		switch kind := call.GetKind().(type) {
		case *lockpb.Call_Acquire:
			a.Kind = &lockpb.Answer_Acquire{Acquire: &lockpb.AcquireResponse{
				LeaseId: lease.ID{1, 2, 3}.String(), FencingToken: 1 << 40, Ttl: 30000, Remaining: 30000, AsOf: int64(time.Hour),
				Resource: kind.Acquire.GetResource(), Index: 1 << 20,
			}}
		case *lockpb.Call_Release:
			a.Kind = &lockpb.Answer_Release{Release: &lockpb.ReleaseResponse{AsOf: int64(time.Hour), Index: 1 << 20}}
		}
		response.Answers = append(response.Answers, a)
	}
	return response
}
