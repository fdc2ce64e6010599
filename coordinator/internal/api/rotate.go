package api

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// KeyHolder keeps a node's private ticket key.
type KeyHolder interface {
	// Prepare returns the key that is going to follow, which outlives a crash from then on. Called again before Adopt, it
	// returns the same.
	Prepare() (*ticket.Signer, error)
	// Adopt makes that key the node's own, and destroys the private half of the one before.
	Adopt(*ticket.Signer) error
}

// Rotate implements lockpb.ClusterServer. The node that is asked by a client asks each member, itself too, to rotate its
// own key; a forwarded call is that question.
func (s *Server) Rotate(ctx context.Context, in *lockpb.RotateRequest) (*lockpb.RotateResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.RotateResponse, *refusal) {
		if in.GetOverlap() < 0 || in.GetOverlap() > math.MaxInt32 {
			return nil, invalid("overlap", fmt.Sprintf("overlap %d ms is not between 0 and %d", in.GetOverlap(), math.MaxInt32))
		}
		if forwarded(ctx) {
			return &lockpb.RotateResponse{}, s.rotateOwn(ctx, in)
		}
		missed, refused := s.rotateAll(ctx, in)
		if refused != nil {
			return nil, refused
		}
		now, refused := s.newestKeys(ctx)
		return &lockpb.RotateResponse{Keys: now.GetKeys(), Missed: missed}, refused
	})
}

// rotateAll asks all members at the same time. It is refused if none has done it.
func (s *Server) rotateAll(ctx context.Context, in *lockpb.RotateRequest) (missed []string, _ *refusal) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	members := s.members()
	refusals := make([]*refusal, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() { refusals[i] = s.rotateAt(ctx, m.ID, in) })
	}
	asking.Wait()
	var failed *refusal
	for i, refused := range refusals {
		if refused != nil {
			s.config.Logger.Warn("ticket key not rotated", "at", members[i].ID, "error", refused)
			missed, failed = append(missed, members[i].ID), worst(failed, refused)
		}
	}
	if len(missed) == len(members) {
		return nil, failed
	}
	return missed, nil
}

func (s *Server) rotateAt(ctx context.Context, member string, in *lockpb.RotateRequest) *refusal {
	if member == s.config.Node {
		return s.rotateOwn(ctx, in)
	}
	s.peers.awake(member) // it may have been down a moment ago
	conn, err := s.peers.conn(member)
	if err != nil {
		return refuse(lockpb.Reason_STOPPING, err.Error())
	}
	_, err = lockpb.NewClusterClient(conn).Rotate(s.shards[0].outgoing(ctx), in)
	if err != nil {
		return received(err, member)
	}
	return nil
}

// rotateOwn gives this node a new key. The order is what keeps every ticket verifiable, whenever the node dies: the new
// key is on the disk; it is known in every group; it is the one that a restart finds; it signs; the others retire.
func (s *Server) rotateOwn(ctx context.Context, in *lockpb.RotateRequest) *refusal {
	if s.config.Keys == nil {
		return refuse(lockpb.Reason_INTERNAL, "this node has no ticket key").notApplied()
	}
	s.rotating.Lock()
	defer s.rotating.Unlock()
	ctx = s.asSelf(metadata.NewIncomingContext(ctx, metadata.MD{})) // what follows are this node's own calls
	next, err := s.config.Keys.Prepare()
	if err != nil {
		return refuse(lockpb.Reason_INTERNAL, err.Error()).notApplied()
	}
	key := &lockpb.RekeyRequest{Node: s.config.Node, Public: next.Key().Public}
	if refused := s.rekeyEverywhere(ctx, key); refused != nil {
		return refused
	}
	if err := s.config.Keys.Adopt(next); err != nil {
		return refuse(lockpb.Reason_INTERNAL, err.Error()).mayBeApplied()
	}
	s.signer.Store(next)
	s.config.Logger.Info("ticket key rotated", "key", next.Key().ID)
	key.Retire, key.Overlap = true, in.GetOverlap()
	return s.rekeyEverywhere(ctx, key)
}

func (s *Server) rekeyEverywhere(ctx context.Context, in *lockpb.RekeyRequest) *refusal {
	return s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
		_, refused := leading(ctx, sh,
			func(ctx context.Context) (*lockpb.RekeyResponse, *refusal) {
				return &lockpb.RekeyResponse{}, sh.rekey(ctx, in)
			},
			func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.RekeyResponse, error) {
				return leader.Rekey(ctx, in)
			})
		return refused
	})
}

// Rekey implements lockpb.ClusterServer, for other nodes.
func (s *Server) Rekey(ctx context.Context, in *lockpb.RekeyRequest) (*lockpb.RekeyResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.RekeyResponse, *refusal) {
		if !forwarded(ctx) {
			return nil, refuse(lockpb.Reason_PERMISSION_DENIED, "only nodes register ticket keys").advise("use Rotate")
		}
		if n := len(in.GetPublic()); n != ed25519.PublicKeySize && (n != 0 || !in.GetRetire()) {
			return nil, invalid("public", fmt.Sprintf("a key of %d bytes, want %d", n, ed25519.PublicKeySize))
		}
		return &lockpb.RekeyResponse{}, s.rekeyEverywhere(ctx, in)
	})
}

// rekey registers a key on the group's leader, or retires the others of its node.
func (sh *shard) rekey(ctx context.Context, in *lockpb.RekeyRequest) *refusal {
	current := ""
	if len(in.GetPublic()) != 0 {
		current = ticket.KeyID(in.GetPublic())
	}
	if !in.GetRetire() {
		if refused := sh.knows(lock.RetireKey{}); refused != nil {
			return refused // or it would be registered and the others never retired
		}
		_, refused := sh.order(ctx, lock.PutKey{Node: in.GetNode(), KeyID: current, Public: in.GetPublic()})
		return refused
	}
	var retire []lock.RetireKey
	out, err := sh.group.Read(ctx, func(m *lock.Machine) { retire = toRetire(m, in.GetNode(), current, in.GetOverlap()) })
	if err != nil {
		return groupRefusal(err)
	}
	for _, cmd := range retire {
		cmd.After += out.Now
		if _, refused := sh.order(ctx, cmd); refused != nil {
			return refused
		}
	}
	return nil
}

// toRetire lists the keys of a node that are not retired yet, but the current one. After is the overlap: by default a
// lease that waits as long as it may, and is renewed as late as it may, gets a ticket of the new key in between.
func toRetire(m *lock.Machine, node, current string, overlap int64) (retire []lock.RetireKey) {
	after := time.Duration(overlap) * time.Millisecond
	if config := m.Info().Config; overlap == 0 {
		after = config.MaxTTL + config.MaxWait
	}
	keys := slices.DeleteFunc(m.Keys(), func(k lock.Key) bool {
		return k.Node != node || k.KeyID == current || k.Retiring()
	})
	for _, k := range keys {
		retire = append(retire, lock.RetireKey{Node: node, KeyID: k.KeyID, After: lock.LeaseTime(after)})
	}
	return retire
}
