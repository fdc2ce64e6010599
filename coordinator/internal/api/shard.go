package api

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// shard is one Raft group as this node serves it. Which one a call is for is decided once, where it comes in:
// of for a resource, shard for a lease id or a number.
type shard struct {
	*Server
	number uint16
	group  Group
	reigns *reigns

	pausing atomic.Int64  // calls between two attempts to reach a leader
	listing chan struct{} // capacity 1: a large list is being made
}

func newShard(s *Server, number uint16, g Group) *shard {
	return &shard{Server: s, number: number, group: g, reigns: newReigns(g), listing: make(chan struct{}, 1)}
}

// of is the group that a resource belongs to.
func (s *Server) of(resource lease.Resource) *shard {
	return s.shards[lease.GroupOf(resource, uint16(len(s.shards)))]
}

// shard is the group with a number, and whether there is one.
func (s *Server) shard(number uint16) (*shard, bool) {
	if int(number) >= len(s.shards) {
		return nil, false
	}
	return s.shards[number], true
}

// ofLease is the group that granted a lease. An id that no group can have granted names no lease.
func (s *Server) ofLease(id lease.ID) (*shard, *refusal) {
	sh, ok := s.shard(id.Group())
	if !ok {
		return nil, refuse(lockpb.Reason_LEASE_ENDED, fmt.Sprintf("there is no such lease: the cluster has no group %d", id.Group()))
	}
	return sh, nil
}

// summarised is a Group that knows what its state amounts to without having it.
type summarised interface{ Info() lock.Info }

// replicated reports whether this node has the group's state.
func (sh *shard) replicated() bool {
	_, without := sh.group.(summarised)
	return !without
}

// glancing is a Group that tells what its state amounts to without having callers wait for it.
type glancing interface{ Glance() lock.Info }

// info is what this node knows of the group's state. It may lag. A call that is only to be made must come by without waiting for the
// entry that is being applied: a session that waits for one entry after the other at each of its calls makes no progress.
func (sh *shard) info() (info lock.Info) {
	switch g := sh.group.(type) {
	case summarised:
		return g.Info()
	case glancing:
		return g.Glance()
	}
	sh.group.View(func(m *lock.Machine) { info = m.Info() })
	return info
}

// now is lease time as this node's replica knows it. Each group has a lease clock of its own.
func (sh *shard) now() int64 { return int64(sh.info().Now) }

// propose commits a command on the leader. A refusal of the machine is in the second result, like every other.
func (sh *shard) propose(ctx context.Context, cmd lock.Command) (group.Outcome, *refusal) {
	out, err := sh.group.Propose(ctx, cmd)
	if err != nil {
		return group.Outcome{}, groupRefusal(err)
	}
	if result, ok := out.Result.(lock.Refused); ok {
		return group.Outcome{}, refused(result, out.Now)
	}
	return out, nil
}

// groupKey says, in the metadata of a forwarded call, which group's leader the call was sent to.
const groupKey = "lychgate-group"

// outgoing marks a call that is sent on to the group's leader.
func (sh *shard) outgoing(ctx context.Context) context.Context {
	return sh.introduced(metadata.AppendToOutgoingContext(ctx, forwardedKey, sh.config.Node, groupKey, strconv.Itoa(int(sh.number))))
}

// addressed is the group that a forwarded call names. ok is false for a call that no node forwarded, and for one of a
// node that has another number of groups.
func (s *Server) addressed(ctx context.Context) (sh *shard, ok bool) {
	if !forwarded(ctx) {
		return nil, false
	}
	said := metadata.ValueFromIncomingContext(ctx, groupKey)
	if len(said) != 1 {
		return nil, false
	}
	number, err := strconv.ParseUint(said[0], 10, 16)
	if err != nil {
		return nil, false
	}
	return s.shard(uint16(number))
}
