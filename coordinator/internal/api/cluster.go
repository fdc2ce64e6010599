package api

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// Status implements lockpb.ClusterServer. It describes this node, and is never forwarded. Every client asks for it
// before its first acquire, so it costs the same whatever the size of the state, unless the digest is asked for.
func (s *Server) Status(ctx context.Context, in *lockpb.StatusRequest) (*lockpb.StatusResponse, error) {
	answer := &lockpb.StatusResponse{Node: s.config.Node}
	for _, sh := range s.shards {
		one, refused := sh.status(ctx, in.GetDigest())
		if refused != nil {
			return nil, refused
		}
		answer.Groups = append(answer.Groups, one)
	}
	first, info := answer.GetGroups()[0], s.shards[0].info()
	answer.Cluster, answer.Version = info.Cluster, info.Version
	answer.Blank, answer.Pending = s.shards[0].group.Status().Blank, first.GetPending()
	answer.Leader, answer.State, answer.Term = first.GetLeader(), first.GetState(), first.GetTerm()
	answer.AppliedIndex, answer.AsOf, answer.Incarnation = first.GetAppliedIndex(), first.GetAsOf(), first.GetIncarnation()
	answer.Leases, answer.Waiters, answer.Digest = first.GetLeases(), first.GetWaiters(), first.GetDigest()
	for _, m := range s.config.Members {
		answer.Nodes = append(answer.Nodes, &lockpb.Node{Id: m.ID, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP, Voter: true})
	}
	return answer, nil
}

// status is one group as this node sees it.
func (sh *shard) status(ctx context.Context, digest bool) (*lockpb.GroupStatus, *refusal) {
	status := sh.group.Status()
	answer := &lockpb.GroupStatus{
		Group: uint32(sh.number), Leader: status.Leader, State: strings.ToLower(status.State), Term: status.Term, Pending: status.Pending,
	}
	info := sh.info()
	if digest {
		var refused *refusal
		if answer.Digest, info, refused = sh.digest(ctx); refused != nil {
			return nil, refused
		}
	}
	answer.AppliedIndex, answer.AsOf, answer.Incarnation = info.Index, int64(info.Now), info.Incarnation
	answer.Leases, answer.Waiters = uint64(info.Leases), uint64(info.Waiters)
	return answer, nil
}

// digest is that of this node's state, which is described with it. One at a time: it sorts the whole state.
func (sh *shard) digest(ctx context.Context) (string, lock.Info, *refusal) {
	select {
	case sh.digesting <- struct{}{}:
		defer func() { <-sh.digesting }()
	case <-ctx.Done():
		return "", lock.Info{}, refuse(lockpb.Reason_OVERLOADED, "digests of other calls took too long")
	}
	frozen, info := sh.group.Freeze()
	digest := frozen.Digest()
	return hex.EncodeToString(digest[:]), info, nil
}

// Keys implements lockpb.ClusterServer, from this node's replica.
func (s *Server) Keys(context.Context, *lockpb.KeysRequest) (*lockpb.KeysResponse, error) {
	document, refused := s.keyDocument()
	if refused != nil {
		return nil, refused
	}
	text, err := document.Marshal()
	if err != nil {
		return nil, refuse(lockpb.Reason_INTERNAL, err.Error())
	}
	answer := &lockpb.KeysResponse{Jwks: string(text)}
	for _, key := range document.Ring.Keys() {
		answer.Keys = append(answer.Keys, &lockpb.Key{KeyId: key.ID, Node: key.Node, Public: key.Public})
	}
	return answer, nil
}

// keyDocument is the set of ticket keys as this node's replica knows it. A replica that is not initialised, or has
// not caught up with the creation of the cluster, has none to give.
func (s *Server) keyDocument() (ticket.Document, *refusal) {
	var info lock.Info
	var puts []lock.Key
	s.shards[0].group.View(func(m *lock.Machine) { info, puts = m.Info(), m.Keys() })
	if !info.Initialised {
		return ticket.Document{}, refuse(lockpb.Reason_NOT_INITIALISED, "this node does not know the cluster yet")
	}
	keys := make([]ticket.Key, 0, len(puts))
	for _, put := range puts {
		keys = append(keys, ticket.Key{ID: put.KeyID, Node: put.Node, Public: put.Public})
	}
	ring, err := ticket.NewKeyRing(info.Cluster, keys)
	if err != nil {
		return ticket.Document{}, refuse(lockpb.Reason_INTERNAL, err.Error())
	}
	return ticket.Document{Ring: ring, Incarnation: info.Incarnation, Index: info.Index}, nil
}
