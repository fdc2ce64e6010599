package group

import (
	"context"

	"github.com/hashicorp/raft"
)

// TransferTo asks a certain member to lead. It returns once this node no longer does, or with the reason why not: the
// member lags, has no vote, or does not answer; then this node leads on.
func (g *Group) TransferTo(ctx context.Context, member string) error {
	node := g.raft.Load()
	if node == nil {
		return g.hint(&Error{Kind: NotLeader, Err: errNotServing})
	}
	done := make(chan error, 1)
	transfer := node.LeadershipTransferToServer(raft.ServerID(member), raft.ServerAddress(member))
	go func() { done <- transfer.Error() }() // the library bounds it by the election timeout
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
