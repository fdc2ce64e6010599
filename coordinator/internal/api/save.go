package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/lychgate/lychgate/coordinator/internal/archive"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// saveChunk is how much of an archive one message carries.
const saveChunk = 256 << 10

// Save implements lockpb.ClusterServer. The archive has the state of each group as its leader has it after the call came,
// so that nothing is missing that was acknowledged before. A forwarded call is for one group, and answered with an
// archive of that one. One at a time on each node: a frozen state costs memory as long as it is written out.
func (s *Server) Save(_ *lockpb.SaveRequest, stream grpc.ServerStreamingServer[lockpb.SaveResponse]) error {
	_, err := reply(bounded(stream.Context(), s, opAdmin, func(ctx context.Context) (*lockpb.SaveResponse, *refusal) {
		select {
		case s.saving <- struct{}{}:
			defer func() { <-s.saving }()
		default:
			return nil, refuse(lockpb.Reason_OVERLOADED, "this node is saving for somebody else").retryAfter(time.Second)
		}
		out := bufio.NewWriterSize(chunks{stream}, saveChunk)
		if refused := s.save(ctx, out); refused != nil {
			return nil, refused
		}
		if err := out.Flush(); err != nil {
			return nil, saveFailed(err)
		}
		return &lockpb.SaveResponse{}, nil
	}))
	return err
}

// chunks sends what is written to it.
type chunks struct {
	stream grpc.ServerStreamingServer[lockpb.SaveResponse]
}

func (c chunks) Write(p []byte) (int, error) {
	if err := c.stream.Send(&lockpb.SaveResponse{Chunk: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *Server) save(ctx context.Context, to io.Writer) *refusal {
	info := s.shards[0].info()
	if !info.Initialised {
		return refuse(lockpb.Reason_NOT_INITIALISED, "this node does not know the cluster yet")
	}
	out, err := archive.NewWriter(to, archive.Header{
		Cluster: info.Cluster, Groups: len(s.shards), Incarnation: info.Incarnation, Version: info.Version,
		Node: s.config.Node, SavedAt: time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return saveFailed(err)
	}
	refused := s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal { return sh.save(ctx, out) })
	if refused != nil {
		return refused.notApplied() // it changes nothing
	}
	if err := out.Close(); err != nil {
		return saveFailed(err)
	}
	return nil
}

func saveFailed(err error) *refusal {
	return refuse(lockpb.Reason_INTERNAL, "the snapshot could not be written: "+err.Error()).notApplied()
}

// save writes the group's state, from here where this node leads it. A leader is looked for as by every call, but only
// until something was written.
func (sh *shard) save(ctx context.Context, to *archive.Writer) *refusal {
	began, pause := time.Now(), firstPause
	for {
		changed := sh.group.Changed()
		begun, refused := sh.trySave(ctx, to)
		if refused == nil || begun || forwarded(ctx) || !passing(refused) {
			return refused
		}
		if time.Since(began) > sh.config.Patience || !sleep(ctx, changed, pause) {
			return refused
		}
		pause = min(2*pause, longestPause)
	}
}

// trySave reports whether anything was written, too.
func (sh *shard) trySave(ctx context.Context, to *archive.Writer) (begun bool, _ *refusal) {
	leader, self := sh.group.Leader()
	switch {
	case self:
		return sh.saveHere(ctx, to)
	case forwarded(ctx):
		return false, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("node %s does not lead group %d", sh.config.Node, sh.number))
	case leader == "":
		return false, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("no leader of group %d is known", sh.number))
	}
	return sh.saveFrom(ctx, leader, to)
}

func (sh *shard) saveHere(ctx context.Context, to *archive.Writer) (begun bool, _ *refusal) {
	if refused := sh.read(ctx, func(*lock.Machine) {}); refused != nil {
		return false, refused
	}
	term := sh.group.Status().Term
	frozen, info := sh.group.Freeze()
	h := frozen.Header()
	err := to.Group(archive.Group{
		Group: sh.number, Index: info.Index, Term: term, Leases: info.Leases, Waiters: info.Waiters,
		LastToken: uint64(h.Incarnation)<<lease.CounterBits + h.Counter,
	})
	if err == nil {
		err = group.WriteSave(to, group.Saved{
			Cluster: h.Cluster, Group: sh.number, Incarnation: h.Incarnation, Version: h.Version, Index: info.Index, Term: term,
			Node: sh.config.Node, Members: sh.memberIDs(),
		}, frozen)
	}
	if err != nil {
		return true, saveFailed(err)
	}
	return true, nil
}

// saveFrom copies the group's part of the archive that its leader writes.
func (sh *shard) saveFrom(ctx context.Context, leader string, to *archive.Writer) (begun bool, _ *refusal) {
	conn, err := sh.peers.conn(leader)
	if err != nil {
		return false, refuse(lockpb.Reason_NO_LEADER, err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := lockpb.NewClusterClient(conn).Save(sh.outgoing(ctx), &lockpb.SaveRequest{})
	if err != nil {
		return false, received(err, leader)
	}
	from := &savedStream{stream: stream}
	in, err := archive.NewReader(from)
	if err != nil {
		return false, from.refusal(err, leader)
	}
	g, err := in.Next()
	if err != nil {
		return false, from.refusal(err, leader)
	}
	if g.Group != sh.number {
		return false, saveFailed(fmt.Errorf("node %s has sent group %d for group %d", leader, g.Group, sh.number))
	}
	if err := to.Group(g); err != nil {
		return true, saveFailed(err)
	}
	if _, err := io.Copy(to, in); err != nil {
		return true, from.refusal(err, leader)
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return true, from.refusal(err, leader)
	}
	return true, nil
}

// savedStream reads an archive that another node sends.
type savedStream struct {
	stream grpc.ServerStreamingClient[lockpb.SaveResponse]
	rest   []byte
	lost   error // why there is no more; nil after an orderly end
}

func (r *savedStream) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		message, err := r.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.lost = err
			}
			return 0, err
		}
		r.rest = message.GetChunk()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// refusal is why an archive could not be read, which may be the stream's fault.
func (r *savedStream) refusal(err error, node string) *refusal {
	if r.lost != nil {
		return received(r.lost, node).notApplied()
	}
	return saveFailed(err)
}
