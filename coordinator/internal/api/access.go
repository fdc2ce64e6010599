package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// demand is what a method asks of its caller before it is looked at what the call is about.
type demand uint8

const (
	toAnybody demand = iota + 1 // what it tells is public
	toNodes                     // between nodes only
	toOwners                    // whoever has said who it is: what it is about has to be its own
	toKnown                     // whoever has some right: the method itself asks for the one that it takes
	toReaders                   // who may read everything
	toAdmins                    // who may administer everything
)

// demandOf is the one list of what each method asks. What is not in it is open to nobody.
func demandOf(method string) (demand, bool) {
	switch method {
	case lockpb.Cluster_Keys_FullMethodName, // verifies tickets, and is what services of others need
		"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch":
		return toAnybody, true
	case lockpb.Cluster_Meet_FullMethodName, lockpb.Cluster_Rekey_FullMethodName, lockpb.Cluster_Edges_FullMethodName,
		lockpb.Cluster_Kill_FullMethodName:
		return toNodes, true
	case lockpb.Locks_Renew_FullMethodName, lockpb.Locks_Release_FullMethodName,
		lockpb.Locks_Heartbeat_FullMethodName, lockpb.Locks_Session_FullMethodName:
		return toOwners, true
	case lockpb.Locks_Acquire_FullMethodName, lockpb.Locks_Follow_FullMethodName, lockpb.Locks_Cancel_FullMethodName,
		lockpb.Locks_Break_FullMethodName, lockpb.Locks_Get_FullMethodName, lockpb.Locks_List_FullMethodName,
		lockpb.Locks_Watch_FullMethodName, lockpb.Locks_Hot_FullMethodName,
		lockpb.Cluster_Status_FullMethodName: // every client asks for the lease time before its first acquire
		return toKnown, true
	case lockpb.Cluster_Policies_FullMethodName:
		return toReaders, true
	case lockpb.Cluster_Join_FullMethodName, lockpb.Cluster_Remove_FullMethodName, lockpb.Cluster_Transfer_FullMethodName,
		lockpb.Cluster_Save_FullMethodName, lockpb.Cluster_Rotate_FullMethodName,
		lockpb.Cluster_PutPolicy_FullMethodName, lockpb.Cluster_DeletePolicy_FullMethodName:
		return toAdmins, true
	}
	return 0, false
}

// demand refuses a caller who may not make any call of a method.
func (s *Server) demand(ctx context.Context, c *caller, method string) *refusal {
	asked, known := demandOf(method)
	switch {
	case !known && c.fault != nil:
		return c.fault
	case !known && s.config.Security.Rules == nil:
		return nil // the library says what is wrong with it
	case !known:
		return refuse(lockpb.Reason_PERMISSION_DENIED, fmt.Sprintf("nobody has a right to %s", shortened(method)))
	case asked == toAnybody:
		return nil
	case c.fault != nil:
		return c.fault
	}
	switch asked {
	case toNodes:
		return s.allowNodes(c)
	case toKnown:
		return s.allowKnown(ctx)
	case toReaders:
		return s.allow(ctx, access.Read, "")
	case toAdmins:
		return s.allow(ctx, access.Admin, "")
	case toAnybody, toOwners:
	}
	return nil
}

// allow refuses a caller who lacks a right on a resource; an empty one stands for the whole cluster. Every call that is
// about a resource asks it on the node that took the call from the client, and those that change something again on
// the leader: while nodes are configured differently, what any of them refuses is refused.
func (s *Server) allow(ctx context.Context, right access.Right, resource lease.Resource) *refusal {
	return s.allowPrefix(ctx, right, string(resource))
}

// allowPrefix refuses a caller who lacks a right on any of the resources whose names begin with a prefix.
func (s *Server) allowPrefix(ctx context.Context, right access.Right, prefix string) *refusal {
	id, refused := s.known(ctx)
	if refused != nil || s.isSelf(ctx) || s.config.Security.Rules.Allows(id, right, prefix) {
		return refused
	}
	if prefix == "" {
		return s.deniedTo(id, right, fmt.Sprintf("%s the whole cluster", right))
	}
	return s.deniedTo(id, right, fmt.Sprintf("%s %s", right, prefix))
}

// allowAcquire refuses a caller who may not acquire a resource in a mode.
func (s *Server) allowAcquire(ctx context.Context, mode lease.Mode, resource lease.Resource) *refusal {
	if mode == lease.Shared {
		return s.allow(ctx, access.Shared, resource)
	}
	return s.allow(ctx, access.Acquire, resource)
}

// allowKnown refuses a caller without any right. Nodes and gateways have to know how the cluster stands.
func (s *Server) allowKnown(ctx context.Context) *refusal {
	if c, ok := callerOf(ctx); ok && c.fault == nil && !c.forwarded && s.believed(c.sender) {
		return nil
	}
	id, refused := s.known(ctx)
	if refused != nil || s.isSelf(ctx) || s.config.Security.Rules.Knows(id) {
		return refused
	}
	return s.deniedTo(id, access.Read, "anything here")
}

// allowCancel refuses a caller who may acquire nothing. A cancel of what was never seen is remembered, so it must not be
// open to those who may only read.
func (s *Server) allowCancel(ctx context.Context) *refusal {
	if forwarded(ctx) || s.isSelf(ctx) {
		return nil // it was asked where the call came in
	}
	id, refused := s.known(ctx)
	if refused != nil {
		return refused
	}
	for _, right := range []access.Right{access.Acquire, access.Shared} {
		if len(s.config.Security.Rules.Prefixes(id, right, "")) > 0 {
			return nil
		}
	}
	return s.deniedTo(id, access.Acquire, "acquire anything, so there is nothing to cancel")
}

// allowNodes refuses whoever is no member, as far as that can be known.
func (s *Server) allowNodes(c *caller) *refusal {
	if s.config.Security.Keys == nil || (c.sender.Kind == peertls.Node && s.believed(c.sender)) {
		return nil
	}
	return refuse(lockpb.Reason_PERMISSION_DENIED, "this is for the nodes of the cluster only")
}

func (s *Server) isSelf(ctx context.Context) bool {
	c, ok := callerOf(ctx)
	return ok && c.self
}

// known is who calls, and refuses a caller of whom that is not known.
func (s *Server) known(ctx context.Context) (lease.Identity, *refusal) {
	if c, ok := callerOf(ctx); ok && c.fault != nil {
		return "", c.fault
	}
	id := s.identity(ctx)
	if id == "" {
		return "", refuse(lockpb.Reason_UNAUTHENTICATED, "the call does not say who makes it")
	}
	return id, nil
}

// shown says which resources with a prefix the caller may see, by the rules of this moment. Who may see none of them is
// refused.
func (s *Server) shown(ctx context.Context, prefix string) (show func(lease.Resource) bool, refused *refusal) {
	id, refused := s.known(ctx)
	switch {
	case refused != nil:
		return nil, refused
	case s.config.Security.Rules == nil || s.isSelf(ctx):
		return func(lease.Resource) bool { return true }, nil
	}
	parts := s.config.Security.Rules.Prefixes(id, access.Read, prefix)
	if len(parts) == 0 {
		return nil, s.deniedTo(id, access.Read, fmt.Sprintf("read anything below %q", prefix))
	}
	return func(r lease.Resource) bool {
		for _, part := range parts {
			if strings.HasPrefix(string(r), part) {
				return true
			}
		}
		return false
	}, nil
}

// mayRead reports whether the caller may see a resource, for what filters its answers.
func (s *Server) mayRead(ctx context.Context, resource lease.Resource) bool {
	rules := s.config.Security.Rules
	return rules == nil || s.isSelf(ctx) || rules.Allows(s.identity(ctx), access.Read, string(resource))
}

// acquisition checks an acquire and whether its caller may make it.
func (s *Server) acquisition(ctx context.Context, in *lockpb.AcquireRequest) (lock.Acquire, *refusal) {
	cmd, refused := parseAcquire(s.identity(ctx), in)
	if refused == nil {
		refused = s.allowAcquire(ctx, cmd.Mode, cmd.Resource)
	}
	return cmd, refused
}
