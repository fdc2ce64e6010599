package api

import (
	"context"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// teller is told how a wait goes. It must not block. Nil: nobody asks.
type teller func(*lockpb.Progress)

// Follow implements lockpb.LocksServer.
func (s *Server) Follow(in *lockpb.AcquireRequest, stream lockpb.Locks_FollowServer) error {
	return s.followTo(stream.Context(), in, stream.Send)
}

// followTo is an acquire that sends how its wait goes, and its lease last. The acquire runs by itself, so that a reader
// that is slow delays nobody's news but its own, and then gets the newest.
func (s *Server) followTo(ctx context.Context, in *lockpb.AcquireRequest, send func(*lockpb.FollowResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		granted *lockpb.AcquireResponse
		err     error
	}
	newest := make(chan *lockpb.Progress, 1)
	tell := func(p *lockpb.Progress) {
		select {
		case <-newest:
		default:
		}
		newest <- p // the only sender
	}
	done := make(chan outcome, 1)
	go func() {
		granted, err := s.acquire(ctx, in, tell)
		done <- outcome{granted, err}
	}()
	for {
		select {
		case p := <-newest:
			if err := send(&lockpb.FollowResponse{News: &lockpb.FollowResponse_Progress{Progress: p}}); err != nil {
				cancel()
				<-done // it is detached
				return err
			}
		case o := <-done:
			if o.err != nil {
				return o.err
			}
			return send(&lockpb.FollowResponse{News: &lockpb.FollowResponse_Granted{Granted: o.granted}})
		}
	}
}

// followThere is a Follow on another node, as one call.
func followThere(ctx context.Context, leader lockpb.LocksClient, in *lockpb.AcquireRequest, tell teller) (*lockpb.AcquireResponse, error) {
	stream, err := leader.Follow(ctx, in)
	if err != nil {
		return nil, err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if p := message.GetProgress(); p != nil {
			tell(p)
		}
		if granted := message.GetGranted(); granted != nil {
			return granted, nil
		}
	}
}

// progress tells how a wait stands that has just begun, and returns where its changes come from, if anybody asks.
func (sh *shard) progress(cmd lock.Acquire, w lock.Waiting, out group.Outcome, tell teller) (moved <-chan *lockpb.Progress, leave func()) {
	if tell == nil {
		return nil, func() {}
	}
	tell(progressOf(standing{w.Position, w.Deadline}, w.Holder, out.Index, out.Now))
	if sh.config.Journal == nil {
		return nil, func() {}
	}
	p := sh.config.Journal.groups[sh.number].queues.join(cmd, w)
	return p.news, p.leave
}
