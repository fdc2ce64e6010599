package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// listWaiters is how many waiters of each resource a List shows; Get shows lock.MaxViewWaiters.
const listWaiters = 10

// pageBytes ends a page of List early, so that an answer stays well below maxResponse.
const pageBytes = maxResponse / 4

// Get implements lockpb.LocksServer.
func (s *Server) Get(ctx context.Context, in *lockpb.GetRequest) (*lockpb.GetResponse, error) {
	return serve(ctx, s, opGet, func(ctx context.Context) (*lockpb.GetResponse, *refusal) {
		resource, err := lease.ParseResource(in.GetResource())
		if err != nil {
			return nil, badName(err)
		}
		if in.GetStale() && !forwarded(ctx) {
			// A replica that lags must not call a resource free: then the leader is asked after all.
			if answer := s.getStale(resource); len(answer.GetLock().GetHolders()) > 0 {
				return answer, nil
			}
		}
		return anywhere(ctx, s, false,
			func(ctx context.Context) (*lockpb.GetResponse, *refusal) {
				var answer *lockpb.GetResponse
				refused := s.read(ctx, func(m *lock.Machine) { answer = getOf(m, resource) })
				return answer, refused
			},
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.GetResponse, error) {
				return leader.Get(ctx, in)
			})
	})
}

func (s *Server) getStale(resource lease.Resource) (answer *lockpb.GetResponse) {
	s.group.View(func(m *lock.Machine) { answer = getOf(m, resource) })
	return answer
}

func getOf(m *lock.Machine, resource lease.Resource) *lockpb.GetResponse {
	info := m.Info()
	return &lockpb.GetResponse{
		Lock: lockOf(m.Get(resource), info.Now, lock.MaxViewWaiters), AsOf: int64(info.Now), Index: info.Index,
	}
}

// List implements lockpb.LocksServer.
func (s *Server) List(ctx context.Context, in *lockpb.ListRequest) (*lockpb.ListResponse, error) {
	return serve(ctx, s, opList, func(ctx context.Context) (*lockpb.ListResponse, *refusal) {
		p, refused := parseList(in)
		if refused != nil {
			return nil, refused
		}
		if in.GetStale() {
			var answer *lockpb.ListResponse
			s.group.View(func(m *lock.Machine) { answer = listOf(m, p) })
			return answer, nil
		}
		return anywhere(ctx, s, false,
			func(ctx context.Context) (*lockpb.ListResponse, *refusal) {
				var answer *lockpb.ListResponse
				refused := s.read(ctx, func(m *lock.Machine) { answer = listOf(m, p) })
				return answer, refused
			},
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.ListResponse, error) {
				return leader.List(ctx, in)
			})
	})
}

// listOf makes a page. It asks for one more than the page holds, to know whether there is a next one.
func listOf(m *lock.Machine, p page) *lockpb.ListResponse {
	info := m.Info()
	answer := &lockpb.ListResponse{AsOf: int64(info.Now), Index: info.Index}
	size := 0
	for i, view := range m.List(p.prefix, p.after, p.limit+1) {
		entry := lockOf(view, info.Now, listWaiters)
		size += proto.Size(entry)
		if i == p.limit || (size > pageBytes && i > 0) {
			answer.Next = answer.Locks[i-1].GetResource()
			break
		}
		answer.Locks = append(answer.Locks, entry)
	}
	return answer
}

func (s *Server) read(ctx context.Context, fn func(*lock.Machine)) *refusal {
	if _, err := s.group.Read(ctx, fn); err != nil {
		refused := groupRefusal(err)
		refused.detail.Applied = lockpb.Applied_NO // a read changes nothing
		return refused
	}
	return nil
}
