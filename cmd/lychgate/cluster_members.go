package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func clusterJoinCommand() *cobra.Command {
	var to target
	var node lockpb.Node
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "join ID",
		Short: "Make a node a member of the cluster",
		Long: `Make a node a member of the cluster: first without a vote, and with one when it has caught up.
Start the node before or meanwhile, with an empty folder and a configuration whose members are
those of the cluster and itself. The command ends when the node votes in every group. It may
be repeated; an id that is a member's is refused.

To replace a machine, let the new node join under an id of its own, then remove the old one.`,
		Example: `  lychgate cluster join n4 --peer 10.0.0.4:7602 --grpc 10.0.0.4:7600 --http 10.0.0.4:7601`,
		Args:    named("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			node.Id = args[0]
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := to.joinNode(ctx, c, &node, timeout, cmd.ErrOrStderr())
				if err != nil {
					return to.explainJoin(ctx, err, args[0], timeout)
				}
				return printMessage(cmd.OutOrStdout(), asJSON, answer, func(w io.Writer, r *lockpb.JoinResponse) error {
					_, err := fmt.Fprintf(w, "%s is a member; there are %d\n", args[0], len(r.GetNodes()))
					return err
				})
			})
		},
	}
	to.add(cmd)
	cmd.Flags().StringVar(&node.Peer, "peer", "", "`address` at which the other coordinators reach it")
	cmd.Flags().StringVar(&node.Grpc, "grpc", "", "`address` of its gRPC port")
	cmd.Flags().StringVar(&node.Http, "http", "", "`address` of its HTTP port")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "`duration` within which it has to catch up")
	jsonFlag(cmd, &asJSON)
	for _, flag := range []string{"peer", "grpc", "http"} {
		_ = cmd.MarkFlagRequired(flag) // the flag is there
		completes(cmd, flag)
	}
	return cmd
}

// errNotCaughtUp ends a join whose time is up.
var errNotCaughtUp = errors.New("not caught up in time")

// explainJoin says what a join that ran out of time has left behind: the node may be a member already, without a vote.
func (t *target) explainJoin(ctx context.Context, err error, id string, timeout time.Duration) error {
	if ctx.Err() != nil || !errors.Is(err, errNotCaughtUp) && !errors.Is(err, client.ErrNotCaughtUp) {
		return err
	}
	nodes, looked := t.survey(ctx)
	i := slices.IndexFunc(nodes, func(n nodeView) bool { return n.Node == id })
	what := "it is no member yet: start it, and repeat the command"
	switch {
	case looked != nil:
		what = "look whether it is a member: lychgate cluster status"
	case i >= 0 && nodes[i].Voter:
		what = "it is a member, but it does not vote in every group yet: repeat the command"
	case i >= 0:
		what = "it is a member without a vote now: start it and repeat the command, or take it out: lychgate cluster remove " + id
	}
	return &exitError{Code: exitFailure, Err: fmt.Errorf("join %s: not caught up within %v; %s", id, timeout, what)}
}

// joinNode waits for the join, and says meanwhile how far it is.
func (t *target) joinNode(ctx context.Context, c lockpb.ClusterClient, node *lockpb.Node, timeout time.Duration, progress io.Writer) (*lockpb.JoinResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNotCaughtUp)
	defer cancel()
	until := time.Now().Add(timeout)
	type joined struct {
		answer *lockpb.JoinResponse
		err    error
	}
	done := make(chan joined, 1)
	go func() {
		answer, err := c.Join(ctx, &lockpb.JoinRequest{Node: node})
		done <- joined{answer, err}
	}()
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case j := <-done:
			if j.err != nil && time.Until(until) < timeout/10 { // a node may answer shortly before the time is up
				return nil, fmt.Errorf("%w: %w", errNotCaughtUp, j.err)
			}
			return j.answer, j.err
		case <-ticker.C:
			if how := t.joinProgress(ctx, node); how != said {
				said = how
				fmt.Fprintf(progress, "%s: %s\n", node.GetId(), how)
			}
		}
	}
}

// joinProgress is how a node that joins is, by its own account.
func (t *target) joinProgress(ctx context.Context, node *lockpb.Node) string {
	status, err := t.askStatus(ctx, node.GetGrpc())
	switch {
	case err != nil:
		return "it does not answer at " + node.GetGrpc() + ": start it"
	case status.GetNode() != node.GetId():
		return fmt.Sprintf("at %s answers node %s", node.GetGrpc(), status.GetNode())
	case status.GetPending() != "":
		return status.GetPending()
	}
	return "it takes part"
}

func clusterRemoveCommand() *cobra.Command {
	var to target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Take a member out of the cluster",
		Long: `Take a member's vote and place away, and retire its ticket keys. If it leads, it hands over first.
A member whose going would leave no majority of nodes that are up is refused, and so is the
last one. Stop the node afterwards: until then it tells everybody that it was removed. The
command may be given the address of the very node that goes: it asks another one.`,
		Example: `  lychgate cluster remove n2`,
		Args:    named("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := c.Remove(ctx, &lockpb.RemoveRequest{Id: args[0]})
				if e, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrInvalid) && e.Field == "id" {
					answer, err = to.removeElsewhere(ctx, args[0], err)
				}
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, answer, func(w io.Writer, r *lockpb.RemoveResponse) error {
					_, err := fmt.Fprintf(w, "%s is no member any more; there are %d\n", args[0], len(r.GetNodes()))
					return err
				})
			})
		},
	}
	to.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.ValidArgsFunction = completeNodes(&to)
	return cmd
}

// removeElsewhere asks another node to remove the one that was asked itself, which it refuses.
func (t *target) removeElsewhere(ctx context.Context, id string, refused error) (answer *lockpb.RemoveResponse, err error) {
	nodes, err := t.survey(ctx)
	if err != nil {
		return nil, refused
	}
	others := target{auth: t.auth}
	for _, n := range nodes {
		if n.Node != id && n.Voter && n.Reachable {
			others.addrs = append(others.addrs, n.Address)
		}
	}
	if len(others.addrs) == 0 {
		return nil, refused
	}
	err = others.administer(ctx, func(ctx context.Context, c lockpb.ClusterClient) error {
		answer, err = c.Remove(ctx, &lockpb.RemoveRequest{Id: id})
		return err
	})
	return answer, err
}

func clusterTransferCommand() *cobra.Command {
	var to target
	var node string
	var group uint32
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Hand the leadership to another node",
		Long: `Hand the leadership of one group, or of every group, to another node: a planned change costs the
cluster no election timeout. With several groups leaders are spread over the nodes, and go back
to where they belong seconds later. To stop a node for maintenance no transfer is needed: when it
gets SIGTERM it hands over by itself, and leaders go back to it once it is up again.`,
		Example: `  lychgate cluster transfer --to n2
  lychgate cluster transfer --group 3`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &lockpb.TransferRequest{To: node}
			if cmd.Flags().Changed("group") {
				request.Group = proto.Uint32(group)
			}
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := c.Transfer(ctx, request)
				if err != nil {
					return err
				}
				if err := printMessage(cmd.OutOrStdout(), asJSON, answer, leadersText); err != nil {
					return err
				}
				if len(answer.GetLeaders()) > 1 || group > 0 { // there are several groups
					fmt.Fprintln(cmd.ErrOrStderr(), "leaders of several groups go back to the nodes they are spread over in a few seconds; a node that is stopped hands over by itself")
				}
				return nil
			})
		},
	}
	to.add(cmd)
	cmd.Flags().StringVar(&node, "to", "", "`id` of the node (default: the one that is most up to date)")
	cmd.Flags().Uint32Var(&group, "group", 0, "`number` of the group (default: every group)")
	jsonFlag(cmd, &asJSON)
	_ = cmd.RegisterFlagCompletionFunc("to", completeNodes(&to)) // the flag is there
	completes(cmd, "group")
	return cmd
}

func leadersText(w io.Writer, r *lockpb.TransferResponse) error {
	var rows [][]string
	for _, l := range r.GetLeaders() {
		rows = append(rows, []string{strconv.Itoa(int(l.GetGroup())), orElse(l.GetNode(), "none yet"), l.GetGrpc()})
	}
	return printTable(w, []string{"GROUP", "LEADER", "ADDRESS"}, rows)
}

// completeNodes offers the ids of the members, if a coordinator answers.
func completeNodes(to *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.Name() == "remove" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		nodes, err := to.survey(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, n := range nodes {
			ids = append(ids, n.Node)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
