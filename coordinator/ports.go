package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/api"
)

// stopTimeout is how long the answers of the last calls may take to leave when the node stops.
const stopTimeout = 5 * time.Second

// openPorts listens for gRPC and HTTP. A port that is taken is an error here, before anything else has started.
func (n *Node) openPorts(server *api.Server, security *secured) ([]part, error) {
	handler, err := server.Handler(n.deps.Registry)
	if err != nil {
		return nil, err
	}
	grpcListener, err := n.listen("gRPC", n.config.Listen.GRPC, n.deps.GRPC)
	if err != nil {
		return nil, err
	}
	httpListener, err := n.listen("HTTP", n.config.Listen.HTTP, n.deps.HTTP)
	if err != nil {
		return nil, errors.Join(err, grpcListener.Close())
	}
	grpcAddress, httpAddress := grpcListener.Addr().String(), httpListener.Addr().String()
	n.grpc.Store(&grpcAddress)
	n.http.Store(&httpAddress)
	return []part{
		{"gRPC", func(ctx context.Context) error { return serveGRPC(ctx, server, grpcListener) }},
		{"HTTP", func(ctx context.Context) error {
			return serveHTTP(ctx, api.NewHTTPServer(handler, n.deps.Logger), security.overTLS(httpListener))
		}},
	}, nil
}

func (n *Node) listen(what, address string, given net.Listener) (net.Listener, error) {
	if given == nil {
		var err error
		if given, err = net.Listen("tcp", address); err != nil {
			return nil, fmt.Errorf("listen for %s: %w", what, err)
		}
	}
	return newLimited(given, n.config.Limits.Connections), nil
}

func serveGRPC(ctx context.Context, server *api.Server, l net.Listener) error {
	grpcServer := server.NewGRPC()
	served := make(chan error, 1)
	go func() { served <- grpcServer.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	timer := time.AfterFunc(stopTimeout, grpcServer.Stop)
	defer timer.Stop()
	grpcServer.GracefulStop()
	return <-served
}

func serveHTTP(ctx context.Context, server *http.Server, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close() // what did not end in time is cut off
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
