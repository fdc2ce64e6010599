package api

import (
	"context"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// listAtOnce is the number of leases and waiters up to which a page is made from the state itself. Looking at more would
// hold the log up for too long; then the names are looked for in a frozen copy.
const listAtOnce = 20_000

// listHere makes a page on the leader.
func (sh *shard) listHere(ctx context.Context, p page) (*lockpb.ListResponse, *refusal) {
	var answer *lockpb.ListResponse
	refused := sh.read(ctx, func(m *lock.Machine) {
		if info := m.Info(); info.Leases+info.Waiters <= listAtOnce {
			answer = listOf(m, p)
		}
	})
	if refused != nil || answer != nil {
		return answer, refused
	}
	return sh.listFrozen(ctx, p)
}

// listFrozen makes a page of a large state: the names come from a copy frozen after the call came, one at a time, and
// what is told of them from the state as it is then. Names that were not there yet when the copy was made are missing;
// index and revision are the copy's, so that a watch from there tells of them.
func (sh *shard) listFrozen(ctx context.Context, p page) (*lockpb.ListResponse, *refusal) {
	select {
	case sh.listing <- struct{}{}:
		defer func() { <-sh.listing }()
	case <-ctx.Done():
		return nil, refuse(lockpb.Reason_OVERLOADED, "other lists are being made")
	}
	frozen, info := sh.group.Freeze()
	for ctx.Err() == nil {
		names := firstNames(frozen.Resources(), p)
		var answer *lockpb.ListResponse
		sh.group.View(func(m *lock.Machine) { answer = pageOf(m, names, p.limit) })
		if len(answer.GetLocks()) == 0 && answer.GetNext() != "" { // all of them are free by now
			p.after = lease.Resource(answer.GetNext())
			continue
		}
		answer.Index, answer.Revision = info.Index, revisionOf(info)
		return answer, nil
	}
	return nil, refuse(lockpb.Reason_OVERLOADED, "the list took too long")
}

// firstNames are the first of the names that a page may show, in order, and one more if there are more.
func firstNames(all iter.Seq[lease.Resource], p page) []lease.Resource {
	var names []lease.Resource
	for name := range all {
		if name <= p.after || !strings.HasPrefix(string(name), p.prefix) {
			continue
		}
		if len(names) > p.limit && name >= names[p.limit] {
			continue
		}
		if at, found := slices.BinarySearch(names, name); !found && p.show(name) {
			names = slices.Insert(names, at, lease.Resource(strings.Clone(string(name))))
			names = names[:min(len(names), p.limit+1)]
		}
	}
	return names
}

// pageOf tells how the named resources stand, those that are free left out.
func pageOf(m *lock.Machine, names []lease.Resource, limit int) *lockpb.ListResponse {
	info := m.Info()
	answer := &lockpb.ListResponse{AsOf: int64(info.Now)}
	size := 0
	for i, name := range names {
		if i == limit || size > pageBytes {
			answer.Next = string(names[i-1])
			break
		}
		view := m.Get(name)
		if len(view.Holders) == 0 && view.Waiting == 0 {
			continue
		}
		entry := lockOf(view, info.Now, listWaiters)
		size += proto.Size(entry)
		answer.Locks = append(answer.Locks, entry)
	}
	return answer
}
