package api

import (
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// legibleStreams is legible for methods that take one request and stream their answer.
func legibleStreams(methods []grpc.StreamDesc) []grpc.StreamDesc {
	streams := make([]grpc.StreamDesc, len(methods))
	for i, method := range methods {
		streams[i] = method
		if !method.ClientStreams {
			streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
				return method.Handler(srv, legibleStream{stream})
			}
		}
	}
	return streams
}

// legibleStream reads its request itself, so as to say what is wrong with it.
type legibleStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s legibleStream) RecvMsg(request any) error {
	var f frame
	if err := s.ServerStream.RecvMsg(&f); err != nil {
		return err
	}
	if limit := maxSize(request); len(f.bytes) > limit {
		return tooLong(len(f.bytes), limit)
	}
	return f.read(request)
}

// unstalled serves a method that streams its answer. A client that does not take a message for as long as a session may
// be stalled is cut off, so that it does not keep what the stream holds, such as one of the node's watches.
func (s *Server) unstalled(stream grpc.ServerStream, serve func(grpc.ServerStream) error) error {
	stalled := time.NewTimer(s.stall)
	stalled.Stop()
	done := make(chan error, 1)
	// It ends with the stream, which this method's return ends: a send to a client that does not read has no other end.
	go func() { done <- serve(&timedStream{stream, stalled, s.stall}) }()
	select {
	case err := <-done:
		return err
	case <-stalled.C:
		return refuse(lockpb.Reason_OVERLOADED, fmt.Sprintf("the client has read nothing for %v", s.stall))
	}
}

// timedStream times how long the client does not take a message.
type timedStream struct {
	grpc.ServerStream
	stalled *time.Timer
	stall   time.Duration
}

// SendMsg implements grpc.ServerStream.
func (t *timedStream) SendMsg(message any) error {
	t.stalled.Reset(t.stall)
	defer t.stalled.Stop()
	return t.ServerStream.SendMsg(message)
}
