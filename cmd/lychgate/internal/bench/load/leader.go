package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// leaderFor is the address to which the n-th stream connects: the leaders of the groups in turn.
func leaderFor(ctx context.Context, addrs []string, n int) (string, error) {
	var last error
	for _, addr := range addrs {
		st, err := Status(ctx, addr)
		if err != nil {
			last = err
			continue
		}
		if leaders := leaderAddrs(st); len(leaders) > 0 {
			return leaders[n%len(leaders)], nil
		}
		last = errors.New("no leader is known")
	}
	return "", fmt.Errorf("leader: %w", last)
}

// leaderAddrs are the addresses of the leaders of all groups, each once.
func leaderAddrs(st *lockpb.StatusResponse) []string {
	names := []string{st.GetLeader()}
	for _, g := range st.GetGroups() {
		names = append(names, g.GetLeader())
	}
	var addrs []string
	for _, name := range names {
		for _, node := range st.GetNodes() {
			if node.GetId() == name && name != "" && !slices.Contains(addrs, node.GetGrpc()) {
				addrs = append(addrs, node.GetGrpc())
			}
		}
	}
	return addrs
}

// statusTimeout bounds how long a node is waited for.
const statusTimeout = time.Second

// Status asks a node, once.
func Status(ctx context.Context, addr string) (*lockpb.StatusResponse, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is left on it
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return lockpb.NewClusterClient(conn).Status(ctx, &lockpb.StatusRequest{})
}
