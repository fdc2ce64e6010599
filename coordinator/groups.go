package coordinator

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/audit"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// hosted are the groups of a node: one replica of each, on one peer port.
type hosted struct {
	port   *group.Port
	groups []*group.Group
	audits []*audit.Log // of each group; none if there is no audit log
	misfit chan error   // the cluster has another number of groups than this node
	logger *slog.Logger
}

// newGroups makes all groups and does no I/O.
func (n *Node) newGroups(signer *ticket.Signer, config api.Config, security *secured) (*hosted, error) {
	h := &hosted{misfit: make(chan error, 1), logger: n.deps.Logger}
	base := n.groupConfig(signer)
	port := group.PortConfig{
		Node: n.config.Node, Members: base.Members, Address: n.config.Listen.Peer, Cluster: h.cluster, Logger: n.deps.Logger,
	}
	security.securePort(&port, func(id string) bool { return h.port.Knows(id) })
	h.port = group.NewPort(port)
	for i := range n.config.Groups {
		if err := h.add(n, uint16(i), base, config); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// groupConfig is what all groups have in common.
func (n *Node) groupConfig(signer *ticket.Signer) group.Config {
	config := group.Config{
		Node:   n.config.Node,
		Dir:    n.config.Dir,
		Lock:   n.config.lock(),
		Key:    publicKey(n.config.Node, signer),
		Timing: n.config.Timing.group(),
		Logger: n.deps.Logger,

		DescribeRenewals: n.config.Audit.Renewals,
		MaxVersion:       n.deps.release,
	}
	for _, m := range n.config.Members {
		config.Members = append(config.Members, group.Member{ID: m.ID, Peer: m.Peer})
	}
	return config
}

// add makes one more group.
func (h *hosted) add(n *Node, number uint16, config group.Config, served api.Config) error {
	config.Group, config.Port = number, h.port
	config.Observer = served.Metrics.Group(number)
	config.Peers = api.NewMeeting(served.Members, served.Security, number, uint16(n.config.Groups), h.misfits)
	config.Releases = api.NewReleases(served.Members, served.Security)
	if n.config.Groups > 1 {
		config.Logger = config.Logger.With("group", number)
	}
	if number == 0 {
		config.Cluster = "lg-" + strings.ToLower(rand.Text()[:16])
	} else {
		config.Name = h.awaitName
	}
	record, err := n.newAudit(number, served.Metrics, config.Logger)
	if err != nil {
		return err
	}
	if record != nil {
		h.audits = append(h.audits, record)
	}
	config.OnApply, config.OnRestore = told(number, served, record)
	g, err := group.New(config)
	if err != nil {
		return err
	}
	h.groups = append(h.groups, g)
	return nil
}

// told is who sees what a group applies and restores.
func told(number uint16, served api.Config, record *audit.Log) (applied func(group.Applied), restored func(uint64)) {
	applied = func(a group.Applied) {
		served.Metrics.Applied(a)
		served.Journal.Applied(number, a)
		if record != nil {
			record.Applied(a)
		}
	}
	restored = func(index uint64) {
		served.Journal.Restored(number, index)
		if record != nil {
			record.Restored(index)
		}
	}
	return applied, restored
}

// newAudit is one group's audit log; nil if there is to be none.
func (n *Node) newAudit(number uint16, metrics *api.Metrics, logger *slog.Logger) (*audit.Log, error) {
	path := n.config.groupAuditFile(number)
	if path == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return audit.New(audit.Config{
		Path: path, Group: number, MaxBytes: n.config.Audit.MaxBytes, Keep: n.config.Audit.Keep,
		Node: n.config.Node, Renewals: n.config.Audit.Renewals, Dropped: metrics.AuditDropped, Logger: logger,
	})
}

// served are the groups as the API takes them.
func (h *hosted) served() []api.Group {
	out := make([]api.Group, len(h.groups))
	for i, g := range h.groups {
		out[i] = g
	}
	return out
}

// cluster is the name of the cluster, empty until the first group has it.
func (h *hosted) cluster() (name string) {
	h.groups[0].View(func(m *lock.Machine) { name = m.Info().Cluster })
	return name
}

// nameEvery is how often the first group is looked at while another one waits for its name: at creation only.
const nameEvery = 20 * time.Millisecond

// awaitName waits until the first group has the cluster's name, which all groups bear.
func (h *hosted) awaitName(ctx context.Context) (string, error) {
	ticker := time.NewTicker(nameEvery)
	defer ticker.Stop()
	for {
		if name := h.cluster(); name != "" {
			return name, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", fmt.Errorf("group 0 has not begun: %w", context.Cause(ctx))
		}
	}
}

// misfits takes why this node can never take part in the cluster.
func (h *hosted) misfits(err error) {
	select {
	case h.misfit <- err:
	default: // said already
	}
}

// parts is what runs: the port is closed after the last group, and a group ends before its audit log.
func (h *hosted) parts() []part {
	parts := []part{{"peer port", func(ctx context.Context) error {
		<-ctx.Done()
		return h.port.Close()
	}}}
	for _, record := range h.audits {
		parts = append(parts, part{"audit", record.Run})
	}
	for i, g := range h.groups {
		parts = append(parts, part{h.partName(i), g.Run})
	}
	return append(parts, part{"groups", func(ctx context.Context) error {
		select {
		case err := <-h.misfit:
			return err
		case <-ctx.Done():
			return nil
		}
	}})
}

func (h *hosted) partName(i int) string {
	if len(h.groups) == 1 {
		return "group"
	}
	return fmt.Sprintf("group %d", i)
}

// handOver makes other nodes the leaders before this one stops to serve: the other nodes send every call to the leader,
// and the last connections here may take their time to end. The calls that wait here go on to the new leader.
func (h *hosted) handOver(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var handing sync.WaitGroup
	for i, g := range h.groups {
		if _, leads := g.Leader(); !leads || len(g.Peers()) == 1 {
			continue
		}
		handing.Go(func() {
			if err := g.Transfer(ctx, ""); err != nil {
				h.logger.Info("leadership not handed over", "group", i, "error", err)
			}
		})
	}
	handing.Wait()
}
