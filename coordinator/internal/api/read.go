package api

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/access"
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
		if refused := s.allow(ctx, access.Read, resource); refused != nil {
			return nil, refused
		}
		sh := s.of(resource)
		if in.GetStale() && !forwarded(ctx) {
			// A replica that lags must not call a resource free: then the leader is asked after all.
			if answer := sh.getStale(resource); len(answer.GetLock().GetHolders()) > 0 {
				return answer, nil
			}
		}
		return anywhere(ctx, sh, false,
			func(ctx context.Context) (*lockpb.GetResponse, *refusal) {
				var answer *lockpb.GetResponse
				refused := sh.read(ctx, func(m *lock.Machine) { answer = getOf(m, resource) })
				return answer, refused
			},
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.GetResponse, error) {
				return leader.Get(ctx, in)
			})
	})
}

func (sh *shard) getStale(resource lease.Resource) (answer *lockpb.GetResponse) {
	sh.group.View(func(m *lock.Machine) { answer = getOf(m, resource) })
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
		if refused == nil {
			p.show, refused = s.shown(ctx, p.prefix)
		}
		if refused != nil {
			return nil, refused
		}
		if sh, ok := s.addressed(ctx); ok {
			return sh.list(ctx, in, p)
		}
		pages, refused := everywhere(s, func(sh *shard) (*lockpb.ListResponse, *refusal) { return sh.list(ctx, in, p) })
		if refused != nil {
			return nil, refused
		}
		return merged(pages, p.limit), nil
	})
}

// everywhere asks all groups at once. One that refuses makes the whole refused: half of a list would be taken for all.
func everywhere[R any](s *Server, ask func(*shard) (R, *refusal)) ([]R, *refusal) {
	answers := make([]R, len(s.shards))
	refusals := make([]*refusal, len(s.shards))
	var asking sync.WaitGroup
	for i, sh := range s.shards[1:] {
		asking.Go(func() { answers[i+1], refusals[i+1] = ask(sh) })
	}
	answers[0], refusals[0] = ask(s.shards[0])
	asking.Wait()
	for _, refused := range refusals {
		if refused != nil {
			return nil, refused
		}
	}
	return answers, nil
}

// merged is one page, in the order of names, of a page of each group. Each page is as its group was at a moment after
// the call came; together they are not one moment, and index and as_of are those of the group they came from, so
// of the whole there are none where there are several.
func merged(pages []*lockpb.ListResponse, limit int) *lockpb.ListResponse {
	if len(pages) == 1 {
		return pages[0]
	}
	out := &lockpb.ListResponse{Revision: mergedRevision(pages)}
	more := false
	end := "" // behind it at least one group has not told what it has
	for _, page := range pages {
		out.Locks = append(out.Locks, page.GetLocks()...)
		if next := page.GetNext(); next != "" && (end == "" || next < end) {
			end, more = next, true
		}
	}
	slices.SortFunc(out.Locks, func(a, b *lockpb.Lock) int { return strings.Compare(a.GetResource(), b.GetResource()) })
	size, n := 0, 0
	for ; n < len(out.Locks); n++ {
		entry := out.Locks[n]
		size += proto.Size(entry)
		if n == limit || (size > pageBytes && n > 0) || (end != "" && entry.GetResource() > end) {
			more = true
			break
		}
	}
	out.Locks = out.Locks[:n]
	if more && n > 0 {
		out.Next = out.Locks[n-1].GetResource()
	}
	return out
}

func (sh *shard) list(ctx context.Context, in *lockpb.ListRequest, p page) (*lockpb.ListResponse, *refusal) {
	if in.GetStale() && !forwarded(ctx) && sh.replicated() {
		var answer *lockpb.ListResponse
		sh.group.View(func(m *lock.Machine) { answer = listOf(m, p) })
		return answer, nil
	}
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.ListResponse, *refusal) {
			return sh.listHere(ctx, p)
		},
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.ListResponse, error) {
			return leader.List(ctx, in)
		})
}

// listOf makes a page. It asks for one more than the page holds, to know whether there is a next one.
func listOf(m *lock.Machine, p page) *lockpb.ListResponse {
	info := m.Info()
	answer := &lockpb.ListResponse{AsOf: int64(info.Now), Index: info.Index, Revision: revisionOf(info)}
	size := 0
	for i, view := range m.ListWhere(p.prefix, p.after, p.limit+1, p.show) {
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

func (sh *shard) read(ctx context.Context, fn func(*lock.Machine)) *refusal {
	if _, err := sh.group.Read(ctx, fn); err != nil {
		refused := groupRefusal(err)
		refused.detail.Applied = lockpb.Applied_NO // a read changes nothing
		return refused
	}
	return nil
}
