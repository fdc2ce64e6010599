package watch

import (
	"context"
	"errors"
	"fmt"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/fencestore"
)

// SmallestLive asks the coordinators for the token below which no lease of the cluster is live, nor ever will be: the smallest of
// all groups. One that lags knows an older and so a smaller one, which is as true. Gateways have no leases to look at:
// the next address is asked. Safe for concurrent use.
func (c *Coordinators) SmallestLive(ctx context.Context, cluster string) (fencestore.Token, error) {
	var failed error
	for _, addr := range c.Addrs {
		token, err := c.smallestAt(ctx, cluster, addr)
		if err == nil {
			return token, nil
		}
		failed = errors.Join(failed, fmt.Errorf("coordinator %s: %w", addr, err))
	}
	return 0, failed
}

func (c *Coordinators) smallestAt(ctx context.Context, cluster, addr string) (fencestore.Token, error) {
	one, err := client.Dial(c.config(addr))
	if err != nil {
		return 0, err
	}
	defer one.Close() //nolint:errcheck // nothing is in it
	asking, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	status, err := one.Cluster().Status(asking, &lockpb.StatusRequest{SmallestLive: true})
	if err != nil {
		return 0, err
	}
	if status.GetCluster() != cluster {
		return 0, fmt.Errorf("it is of cluster %q, and tickets are of %q", status.GetCluster(), cluster)
	}
	var smallest fencestore.Token
	for i, group := range status.GetGroups() {
		token := fencestore.Token(group.GetSmallestLive())
		if token == 0 {
			return 0, fmt.Errorf("group %d does not say its smallest live token: its program is too old", group.GetGroup())
		}
		if i == 0 || token < smallest {
			smallest = token
		}
	}
	if smallest == 0 {
		return 0, errors.New("it has no groups")
	}
	return smallest, nil
}
