package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Releases asks other nodes which cluster version their programs know. It implements group.Releases and keeps no connection.
type Releases struct {
	addresses map[string]string
	secure    dialSecurity
}

// NewReleases is for the configured members' gRPC addresses.
func NewReleases(members []Member, secure Security) *Releases {
	r := &Releases{addresses: make(map[string]string), secure: secure.dial()}
	for _, m := range members {
		r.addresses[m.ID] = m.GRPC
	}
	return r
}

// Known implements group.Releases.
func (r *Releases) Known(ctx context.Context, member, address string) (uint32, error) {
	if configured := r.addresses[member]; configured != "" {
		address = configured
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(r.secure(member)))
	if err != nil {
		return 0, fmt.Errorf("ask node %q: %w", member, err)
	}
	defer func() { _ = conn.Close() }()
	status, err := lockpb.NewClusterClient(conn).Status(ctx, &lockpb.StatusRequest{})
	if err != nil {
		return 0, fmt.Errorf("ask node %q: %w", member, err)
	}
	if status.GetNode() != member {
		return 0, fmt.Errorf("the gRPC address of node %q is that of node %q", member, status.GetNode())
	}
	return status.GetReleaseVersion(), nil
}
