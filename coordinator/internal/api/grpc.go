package api

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// NewGRPC is the gRPC server of the node, with its services registered. Reflection is off: the API is documented,
// and nobody has to be helped to find what else there may be.
func (s *Server) NewGRPC() *grpc.Server {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxResponse),
		// Waiting calls of many clients come over one connection from another node; if they used its streams up, a
		// release could not pass them. What bounds calls is Config.MaxCalls.
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
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

// legible is a service whose unreadable requests are refused as INVALID: to the library they are an internal error.
func legible(service grpc.ServiceDesc) *grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, len(service.Methods))
	for i, method := range service.Methods {
		methods[i] = grpc.MethodDesc{
			MethodName: method.MethodName,
			Handler: func(srv any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
				return method.Handler(srv, ctx, func(request any) error { return unreadable(decode(request)) }, next)
			},
		}
	}
	service.Methods = methods
	return &service
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "UTF-8") {
		return invalid("", "a name is not valid UTF-8")
	}
	return invalid("", "the request is not a message of this method")
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
