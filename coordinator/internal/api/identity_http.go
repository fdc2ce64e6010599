package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/peertls"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// identified adds to each HTTP request who makes it.
func (s *Server) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), s.httpCaller(r))))
	})
}

func (s *Server) httpCaller(r *http.Request) *caller {
	with := credentials{bearer: r.Header.Values("Authorization"), from: r.RemoteAddr}
	if r.TLS != nil && s.config.Security.Keys != nil {
		with.sender, with.badCert = s.certified(r)
	}
	return s.authenticate(with)
}

// certified is whom the certificate of an HTTP connection names, looked at once for each connection.
func (s *Server) certified(r *http.Request) (peertls.Name, error) {
	seen, ok := r.Context().Value(shownKey{}).(*shownOnce)
	if !ok {
		seen = new(shownOnce)
	}
	seen.once.Do(func() { seen.name, _, seen.err = s.config.Security.Keys.Who(*r.TLS) })
	return seen.name, seen.err
}

type shownKey struct{}

type shownOnce struct {
	once sync.Once
	name peertls.Name
	err  error
}

// rememberShown is the ConnContext of the HTTP server.
func rememberShown(ctx context.Context, conn net.Conn) context.Context {
	if _, ok := conn.(*tls.Conn); !ok {
		return ctx
	}
	return context.WithValue(ctx, shownKey{}, new(shownOnce))
}

// inside is the way from the HTTP port to the methods: the same that gRPC calls take, so that nothing can be reached by
// HTTP that is not asked what every method is.
type inside struct{ server *Server }

var errNoStreams = status.Error(codes.Unimplemented, "this method has no HTTP form")

// Invoke implements grpc.ClientConnInterface.
func (i inside) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	handler, err := unaryHandler(method)
	if err != nil {
		return err
	}
	request, isMessage := args.(proto.Message)
	into, fits := reply.(proto.Message)
	if !isMessage || !fits {
		return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("%s of %T", method, args))
	}
	answer, err := handler(i.server, ctx, func(in any) error {
		message, ok := in.(proto.Message)
		if !ok {
			return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("%s takes %T", method, in))
		}
		proto.Merge(message, request)
		return nil
	}, i.server.admitUnary)
	if err != nil {
		return err
	}
	message, ok := answer.(proto.Message)
	if !ok {
		return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("%s answered with %T", method, answer))
	}
	proto.Merge(into, message)
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (i inside) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoStreams
}

func unaryHandler(method string) (grpc.MethodHandler, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, desc := range []grpc.ServiceDesc{lockpb.Locks_ServiceDesc, lockpb.Cluster_ServiceDesc} {
		if desc.ServiceName != service {
			continue
		}
		for _, m := range desc.Methods {
			if m.MethodName == name {
				return m.Handler, nil
			}
		}
	}
	return nil, errors.New("api: no method " + method)
}
