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
	status := s.group.Status()
	answer := &lockpb.StatusResponse{
		Node:   s.config.Node,
		Leader: status.Leader,
		State:  strings.ToLower(status.State),
		Term:   status.Term,

		Blank:   status.Blank,
		Pending: status.Pending,
	}
	var info lock.Info
	if in.GetDigest() {
		var refused *refusal
		if answer.Digest, info, refused = s.digest(ctx); refused != nil {
			return nil, refused
		}
	} else {
		s.group.View(func(m *lock.Machine) { info = m.Info() })
	}
	answer.Cluster = info.Cluster
	answer.AppliedIndex = info.Index
	answer.AsOf = int64(info.Now)
	answer.Incarnation = info.Incarnation
	answer.Version = info.Version
	answer.Leases = uint64(info.Leases)
	answer.Waiters = uint64(info.Waiters)
	for _, m := range s.config.Members {
		answer.Nodes = append(answer.Nodes, &lockpb.Node{Id: m.ID, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP, Voter: true})
	}
	return answer, nil
}

// digest is that of this node's state, which is described with it. One at a time: it sorts the whole state.
func (s *Server) digest(ctx context.Context) (string, lock.Info, *refusal) {
	select {
	case s.digesting <- struct{}{}:
		defer func() { <-s.digesting }()
	case <-ctx.Done():
		return "", lock.Info{}, refuse(lockpb.Reason_OVERLOADED, "digests of other calls took too long")
	}
	frozen, info := s.group.Freeze()
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
	var puts []lock.PutKey
	s.group.View(func(m *lock.Machine) { info, puts = m.Info(), m.Keys() })
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
