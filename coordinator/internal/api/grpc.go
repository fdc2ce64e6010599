package api

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that newFrameCodec asks for
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/lockpb/wire"
)

// NewGRPC is the gRPC server of the node, with its services registered. Reflection is off: the API is documented,
// and nobody has to be helped to find what else there may be.
func (s *Server) NewGRPC() *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(counting{s.config.Security.serve()}),
		grpc.InTapHandle(s.await),
		grpc.UnaryInterceptor(s.admitUnary),
		grpc.StreamInterceptor(s.admitStream),
		grpc.ForceServerCodecV2(newFrameCodec()),
		grpc.MaxRecvMsgSize(maxSessionMessage), // of a session; what others may send is less, see legible
		grpc.MaxSendMsgSize(maxResponse),
		grpc.MaxHeaderListSize(maxHeaders),
		// Waiting calls of many clients come over one connection from another node; if they used its streams up, a
		// release could not pass them. There are never more than MaxCalls, and more streams do no good.
		grpc.MaxConcurrentStreams(uint32(min(s.config.MaxCalls, math.MaxInt32))),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 20 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: idleTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			return invalid("", fmt.Sprintf("there is no method %s", shortened(method)))
		}),
	)
	server.RegisterService(legible(lockpb.Locks_ServiceDesc), s)
	server.RegisterService(legible(lockpb.Cluster_ServiceDesc), s)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	return server
}

// legible is a service whose unreadable requests are refused as INVALID. The library would answer with an internal
// error of its own, so it is given a frame to fill, which takes any bytes, and the message is read here.
func legible(service grpc.ServiceDesc) *grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, len(service.Methods))
	for i, method := range service.Methods {
		methods[i] = grpc.MethodDesc{
			MethodName: method.MethodName,
			Handler: func(srv any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
				read := func(request any) error {
					var f frame
					if err := decode(&f); err != nil {
						return err
					}
					if limit := maxSize(request); len(f.bytes) > limit {
						return tooLong(len(f.bytes), limit)
					}
					return f.read(request)
				}
				return method.Handler(srv, ctx, read, next)
			},
		}
	}
	service.Methods = methods
	service.Streams = legibleStreams(service.Streams)
	return &service
}

// maxSize bounds the requests of one method, in bytes.
func maxSize(request any) int {
	if _, many := request.(*lockpb.HeartbeatRequest); many {
		return maxHeartbeatRequest
	}
	return maxRequest
}

func tooLong(size, limit int) *refusal {
	return invalid("", fmt.Sprintf("the request has %d bytes, at most %d are allowed", size, limit))
}

// frame is a message as it came.
type frame struct{ bytes []byte }

func (f *frame) read(request any) error {
	message, ok := request.(proto.Message)
	if !ok {
		return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("a request of type %T", request))
	}
	return illegible(proto.Unmarshal(f.bytes, message))
}

// readSession is read for the messages of sessions, which come by the thousand.
func (f *frame) readSession(request *lockpb.SessionRequest) error {
	return illegible(wire.ReadRequest(f.bytes, request))
}

// illegible says what is wrong with a request that could not be read, if err says so.
func illegible(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "UTF-8"):
		return invalid("", "a name is not valid UTF-8")
	}
	return invalid("", "the request is not a message of this method")
}

// frameCodec is the library's codec for protobuf, but for frames and for the messages of sessions.
type frameCodec struct{ encoding.CodecV2 }

func newFrameCodec() frameCodec { return frameCodec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal implements encoding.CodecV2.
func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	response, ok := v.(*lockpb.SessionResponse)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	out, err := wire.AppendResponse(make([]byte, 0, responseSize(response)), response)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(out)}, nil
}

// responseSize is about how long a response is.
func responseSize(response *lockpb.SessionResponse) int {
	size := 64 * len(response.GetLeaders())
	for _, a := range response.GetAnswers() {
		size += answerSize(a)
	}
	return size
}

// newHealth starts as not serving; Run keeps it current.
func newHealth() *health.Server {
	h := health.NewServer()
	setHealth(h, false)
	return h
}

func setHealth(h *health.Server, serving bool) {
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if serving {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", lockpb.Locks_ServiceDesc.ServiceName, lockpb.Cluster_ServiceDesc.ServiceName} {
		h.SetServingStatus(service, state)
	}
}
