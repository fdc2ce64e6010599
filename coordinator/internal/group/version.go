package group

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Releases tells which cluster version the programs of other members know.
type Releases interface {
	// Known asks a member. address is its gRPC address as the state has it, empty for one that only the configurations of
	// the nodes name. It ends with ctx at the latest; an answer of another node is an error.
	Known(ctx context.Context, member, address string) (version uint32, err error)
}

const (
	upgradeEvery   = 5 * time.Second
	upgradeTimeout = 2 * time.Second
)

// upgrade raises the cluster version, where this node leads, to what all members know, until ctx ends. A member that is not
// up holds it back: it might come back with the program that it had.
func (g *Group) upgrade(ctx context.Context, node *raft.Raft) {
	ticker := time.NewTicker(upgradeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var info lock.Info
		g.replica.view(func(m *lock.Machine) { info = m.Info() })
		if _, self := g.Leader(); !self || !info.Initialised || info.Version >= g.config.MaxVersion {
			continue
		}
		version := g.knownByAll(ctx, servers(node))
		if version <= info.Version {
			continue
		}
		proposing, cancel := context.WithTimeout(ctx, upgradeTimeout)
		_, err := g.Propose(proposing, lock.SetVersion{Version: version})
		cancel()
		if err != nil {
			g.config.Logger.Info("the cluster version was not raised", "version", version, "error", err)
			continue
		}
		g.config.Logger.Info("the cluster version is raised: every member knows it", "from", info.Version, "to", version)
	}
}

// knownByAll is the version that every member knows; 0 if one does not answer.
func (g *Group) knownByAll(ctx context.Context, members []raft.Server) uint32 {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	var asking sync.WaitGroup
	known := make([]uint32, len(members))
	addresses := make(map[string]string)
	g.replica.view(func(m *lock.Machine) {
		for _, member := range m.Members() {
			addresses[member.ID] = member.GRPC
		}
	})
	for i, m := range members {
		if string(m.ID) == g.config.Node {
			known[i] = g.config.MaxVersion
			continue
		}
		if g.config.Releases == nil {
			return 0
		}
		asking.Go(func() {
			version, err := g.config.Releases.Known(ctx, string(m.ID), addresses[string(m.ID)])
			if err == nil {
				known[i] = version
			}
		})
	}
	asking.Wait()
	least := g.config.MaxVersion
	for _, version := range known {
		least = min(least, version)
	}
	return least
}

// accepts refuses an entry that this program, or the cluster's version, does not know: what it does not know it must not
// skip.
func (r *replica) accepts(e lock.Entry) error {
	var err error
	r.view(func(m *lock.Machine) { err = m.Accepts(e) })
	if err != nil {
		return err
	}
	for _, c := range e.Commands {
		version := lock.Needs(c)
		switch c := c.(type) {
		case lock.SetVersion:
			version = max(version, c.Version)
		case lock.Init:
			version = max(version, c.Version)
		default:
		}
		if version > r.knows {
			return unknownVersion(version, r.knows)
		}
	}
	return nil
}

func unknownVersion(version, knows uint32) error {
	return fmt.Errorf("it is of cluster version %d, and this program knows %d: start the program that ran here before, or a later one",
		version, knows)
}
