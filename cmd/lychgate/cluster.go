package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Look at the nodes of the coordinator, and after them"}
	cmd.AddCommand(clusterStatusCommand(), clusterJoinCommand(), clusterRemoveCommand(), clusterTransferCommand(), clusterSnapshotCommand(), clusterRestoreCommand())
	return cmd
}

func clusterStatusCommand() *cobra.Command {
	var to target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask every node how it is",
		Long: `Ask every node of the cluster how it is, each for itself: which are reachable from here, whom each
takes for the leader, and how far each has applied the log. One of the addresses has to answer:
it knows the other nodes. Exit code 1 if fewer nodes answer than make a quorum.`,
		Example: `  lychgate cluster status
  lychgate cluster status --address n2:7600 --json`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			nodes, err := to.survey(cmd.Context())
			if err != nil {
				return explain(err, &to)
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), nodes)
			} else {
				err = printNodes(cmd.OutOrStdout(), nodes)
			}
			return cmp.Or(err, quorate(nodes))
		},
	}
	to.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// statusTimeout bounds how long a node is waited for.
const statusTimeout = 2 * time.Second

// nodeView is a node as --json prints it. What only an answer tells is left out of one that gave none.
type nodeView struct {
	Node      string `json:"node"`
	Address   string `json:"address"` // gRPC
	Voter     bool   `json:"voter"`
	Reachable bool   `json:"reachable"`
	Error     string `json:"error,omitempty"`
	State     string `json:"state,omitempty"`
	Leader    string `json:"leader,omitempty"` // as this node knows it
	Term      uint64 `json:"term,omitempty"`
	Applied   uint64 `json:"appliedIndex,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Blank     bool   `json:"blank,omitempty"`   // its folder is empty
	Pending   string `json:"pending,omitempty"` // why it does not take part, or not with a vote

	Incarnation uint32      `json:"incarnation,omitempty"`
	Version     uint32      `json:"version,omitempty"`        // of the cluster
	Release     uint32      `json:"releaseVersion,omitempty"` // the newest that the node's program knows
	Groups      []groupView `json:"groups,omitempty"`
}

// groupView is a group as a node sees it.
type groupView struct {
	Group   uint32 `json:"group"`
	State   string `json:"state"`
	Leader  string `json:"leader"`
	Term    uint64 `json:"term"`
	Applied uint64 `json:"appliedIndex"`
	Leases  uint64 `json:"leases"`
	Waiters uint64 `json:"waiters"`
	Pending string `json:"pending,omitempty"`
}

// polled is what one address answered.
type polled struct {
	status *lockpb.StatusResponse
	err    error
}

// survey asks the addresses for the members, and then the members that were not among them.
func (t *target) survey(ctx context.Context) ([]nodeView, error) {
	var members []*lockpb.Node
	heard := map[string]*lockpb.StatusResponse{} // by node
	answers := t.poll(ctx, t.addrs)
	for _, a := range answers {
		if a.err == nil {
			heard[a.status.GetNode()] = a.status
			members = a.status.GetNodes()
		}
	}
	if len(heard) == 0 {
		return nil, answers[0].err
	}
	var rest []string
	for _, m := range members {
		if heard[m.GetId()] == nil {
			rest = append(rest, m.GetGrpc())
		}
	}
	failed := map[string]error{} // by address
	for i, a := range t.poll(ctx, rest) {
		if a.err == nil {
			heard[a.status.GetNode()] = a.status
		} else {
			failed[rest[i]] = a.err
		}
	}
	nodes := make([]nodeView, len(members))
	for i, m := range members {
		nodes[i] = viewNode(m, heard[m.GetId()], failed[m.GetGrpc()])
	}
	return nodes, nil
}

func viewNode(m *lockpb.Node, st *lockpb.StatusResponse, err error) nodeView {
	v := nodeView{Node: m.GetId(), Address: m.GetGrpc(), Voter: m.GetVoter()}
	switch {
	case st != nil:
		v.Reachable, v.State, v.Leader = true, st.GetState(), st.GetLeader()
		v.Term, v.Applied, v.Cluster = st.GetTerm(), st.GetAppliedIndex(), st.GetCluster()
		v.Blank, v.Pending = st.GetBlank(), st.GetPending()
		v.Incarnation, v.Version, v.Release = st.GetIncarnation(), st.GetVersion(), st.GetReleaseVersion()
		for _, g := range st.GetGroups() {
			v.Groups = append(v.Groups, groupView{
				g.GetGroup(), g.GetState(), g.GetLeader(), g.GetTerm(), g.GetAppliedIndex(), g.GetLeases(), g.GetWaiters(), g.GetPending(),
			})
		}
	case err != nil:
		v.Error = err.Error()
	default:
		v.Error = "another node answers at this address"
	}
	return v
}

// poll asks all addresses at the same time, and returns the answers in their order.
func (t *target) poll(ctx context.Context, addrs []string) []polled {
	answers := make([]polled, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() { answers[i].status, answers[i].err = t.askStatus(ctx, addr) })
	}
	wg.Wait()
	return answers
}

func (t *target) askStatus(ctx context.Context, addr string) (*lockpb.StatusResponse, error) {
	cfg := client.Config{Addrs: []string{addr}}
	if err := t.auth.into(&cfg); err != nil {
		return nil, err
	}
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing was changed
	ctx, cancel := context.WithTimeoutCause(ctx, statusTimeout, fmt.Errorf("no answer within %v", statusTimeout))
	defer cancel()
	return c.Cluster().Status(ctx, &lockpb.StatusRequest{})
}

// quorate is an error if fewer voters answered than the cluster needs.
func quorate(nodes []nodeView) error {
	voters, reachable := 0, 0
	for _, n := range nodes {
		if n.Voter {
			voters++
			if n.Reachable {
				reachable++
			}
		}
	}
	if reachable > voters/2 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes answered, which is no quorum", reachable, voters)
}

func printNodes(w io.Writer, nodes []nodeView) error {
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		rows[i] = []string{n.Node, n.Address, "no", "-", "-", "-", "-", "-"}
		if n.Reachable {
			rows[i] = []string{
				n.Node, n.Address, "yes", orElse(n.State, "none"), orElse(n.Leader, "none"), strconv.FormatUint(n.Term, 10),
				strconv.FormatUint(n.Applied, 10), orElse(n.Cluster, "none yet"),
			}
		}
	}
	if err := printTable(w, []string{"NODE", "ADDRESS", "REACHABLE", "STATE", "LEADER", "TERM", "APPLIED", "CLUSTER"}, rows); err != nil {
		return err
	}
	for _, n := range nodes {
		remark := cmp.Or(n.Error, n.Pending)
		if remark == "" && !n.Voter {
			remark = "has no vote yet"
		}
		if remark == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", n.Node, remark); err != nil {
			return err
		}
	}
	return printGroups(w, nodes)
}

// printGroups tells of the cluster's groups, if it has several, as those that lead them see them; and of an upgrade that
// is not done.
func printGroups(w io.Writer, nodes []nodeView) error {
	leading := map[uint32]groupView{}
	version, release, groups := uint32(0), uint32(math.MaxUint32), 0
	for _, n := range nodes {
		groups = max(groups, len(n.Groups))
		if n.Reachable && n.Release != 0 {
			version, release = max(version, n.Version), min(release, n.Release)
		}
		for _, g := range n.Groups {
			if g.State == "leader" && g.Term >= leading[g.Group].Term {
				g.Leader = n.Node
				leading[g.Group] = g
			}
		}
	}
	if version != 0 && release != math.MaxUint32 && version < release {
		if _, err := fmt.Fprintf(w, "the cluster has version %d, and every node that answers knows %d: it rises once all members are up\n", version, release); err != nil {
			return err
		}
	}
	if groups < 2 {
		return nil
	}
	rows := make([][]string, groups)
	for i := range rows {
		g, ok := leading[uint32(i)]
		rows[i] = []string{strconv.Itoa(i), "none", "-", "-", "-", "-"}
		if ok {
			rows[i] = []string{
				strconv.Itoa(i), g.Leader, strconv.FormatUint(g.Term, 10), strconv.FormatUint(g.Applied, 10),
				strconv.FormatUint(g.Leases, 10), strconv.FormatUint(g.Waiters, 10),
			}
		}
	}
	return printTable(w, []string{"GROUP", "LEADER", "TERM", "APPLIED", "LEASES", "WAITERS"}, rows)
}
