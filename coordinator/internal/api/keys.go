package api

import (
	"context"
	"slices"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// Keys implements lockpb.ClusterServer, from this node's replicas.
func (s *Server) Keys(ctx context.Context, in *lockpb.KeysRequest) (*lockpb.KeysResponse, error) {
	if sh, ok := s.addressed(ctx); ok { // by newestKeys of another node
		return reply(sh.leaderKeys(ctx))
	}
	return reply(s.keySet(ctx, in))
}

// keySet is what this node knows of the keys, or for a gateway what another one does.
func (s *Server) keySet(ctx context.Context, in *lockpb.KeysRequest) (*lockpb.KeysResponse, *refusal) {
	if s.shards[0].replicated() {
		return s.keys()
	}
	return someNode(ctx, s, func(ctx context.Context, node lockpb.ClusterClient) (*lockpb.KeysResponse, error) {
		return node.Keys(ctx, in)
	})
}

func (s *Server) keys() (*lockpb.KeysResponse, *refusal) {
	document, retiring, refused := s.keyDocument()
	if refused != nil {
		return nil, refused
	}
	text, err := document.Marshal()
	if err != nil {
		return nil, refuse(lockpb.Reason_INTERNAL, err.Error()).notApplied()
	}
	answer := &lockpb.KeysResponse{Jwks: string(text)}
	for _, key := range document.Ring.Keys() {
		answer.Keys = append(answer.Keys, &lockpb.Key{KeyId: key.ID, Node: key.Node, Public: key.Public, Retiring: retiring[key.ID]})
	}
	return answer, nil
}

// keyDocument is the set of ticket keys as this node's replicas know it, those of all groups together, and which of them
// are being retired. A replica that is not initialised, or has not caught up with the creation of the cluster, has none to
// give.
func (s *Server) keyDocument() (document ticket.Document, retiring map[string]bool, refused *refusal) {
	retiring = map[string]bool{}
	var keys []ticket.Key
	for _, sh := range s.shards {
		var info lock.Info
		var known []lock.Key
		sh.group.View(func(m *lock.Machine) { info, known = m.Info(), m.Keys() })
		if !info.Initialised {
			return ticket.Document{}, nil, refuse(lockpb.Reason_NOT_INITIALISED, "this node does not know the cluster yet")
		}
		document.Incarnation = max(document.Incarnation, info.Incarnation)
		document.Index += info.Index
		for _, key := range known {
			before, seen := retiring[key.KeyID]
			retiring[key.KeyID] = key.Retiring() && (before || !seen)
			if !seen {
				keys = append(keys, ticket.Key{ID: key.KeyID, Node: key.Node, Public: key.Public})
			}
		}
	}
	ring, err := ticket.NewKeyRing(s.clusterName(), keys)
	if err != nil {
		return ticket.Document{}, nil, refuse(lockpb.Reason_INTERNAL, err.Error()).notApplied()
	}
	document.Ring = ring
	return document, retiring, nil
}

// newestKeys are the keys as the leaders of all groups have them, without the JWK set.
func (s *Server) newestKeys(ctx context.Context) (*lockpb.KeysResponse, *refusal) {
	all := &lockpb.KeysResponse{}
	refused := s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
		one, refused := leading(ctx, sh, sh.leaderKeys, func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.KeysResponse, error) {
			return leader.Keys(ctx, &lockpb.KeysRequest{})
		})
		all.Keys = mergeKeys(all.GetKeys(), one.GetKeys())
		return refused
	})
	return all, refused
}

func (sh *shard) leaderKeys(ctx context.Context) (*lockpb.KeysResponse, *refusal) {
	answer := &lockpb.KeysResponse{}
	refused := sh.read(ctx, func(m *lock.Machine) {
		for _, k := range m.Keys() {
			answer.Keys = append(answer.Keys, &lockpb.Key{KeyId: k.KeyID, Node: k.Node, Public: k.Public, Retiring: k.Retiring()})
		}
	})
	return answer, refused
}

// mergeKeys joins the keys of two groups. A key is being retired once it is in all that know it.
func mergeKeys(all, more []*lockpb.Key) []*lockpb.Key {
	for _, k := range more {
		i := slices.IndexFunc(all, func(known *lockpb.Key) bool { return known.GetKeyId() == k.GetKeyId() })
		if i < 0 {
			all = append(all, k)
			continue
		}
		all[i].Retiring = all[i].GetRetiring() && k.GetRetiring()
	}
	return all
}
