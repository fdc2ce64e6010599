package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// relayWatch serves a watch through a node that has replicas, and through the next one, from where it was, when that
// one goes. It ends when no node has served it for the server's patience.
func (s *Server) relayWatch(ctx context.Context, in *lockpb.WatchRequest, send func(*lockpb.WatchResponse) error) *refusal {
	in = proto.CloneOf(in)
	var node string
	gone := false // the client
	for served := time.Now(); ; {
		node = s.nodeAfter(node)
		last := s.relayFrom(ctx, node, in, func(m *lockpb.WatchResponse) error {
			served = time.Now()
			err := send(m)
			gone = err != nil
			return err
		})
		switch {
		case gone:
			return nil
		case ctx.Err() != nil:
			return refuse(lockpb.Reason_STOPPING, "the watch has ended")
		case !passing(last), time.Since(served) > s.config.Patience:
			last.detail.Applied = lockpb.Applied_NO // a watch changes nothing
			return last
		}
		sleep(ctx, nil, longestPause)
	}
}

// relayFrom passes the messages of one node on, and moves the request to behind them.
func (s *Server) relayFrom(ctx context.Context, node string, in *lockpb.WatchRequest, send func(*lockpb.WatchResponse) error) *refusal {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := s.peers.client(node)
	if err != nil {
		return refuse(lockpb.Reason_NO_LEADER, err.Error())
	}
	stream, err := client.Watch(s.shards[0].outgoing(ctx), in)
	for err == nil {
		var message *lockpb.WatchResponse
		if message, err = stream.Recv(); err == nil {
			in.Revision = message.GetRevision()
			err = send(message)
		}
	}
	return received(err, node)
}
