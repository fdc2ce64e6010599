package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/lease"
	fencesql "github.com/lychgate/lychgate/sql"
)

func clusterRestoreCommand() *cobra.Command {
	var from configFlags
	var how coordinator.Recovery
	var survivor, asJSON bool
	var stores []string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Make a cluster anew from a snapshot file, or from a survivor",
		Long: `Make the folder of one node that of a cluster with this node as its only member: from a snapshot
file, into a folder without any groups, or from what the folder itself holds after a majority of
the nodes was lost for good. It works on files; no node may run, and none may ever start again
with an old folder.

Every lease and wait ends, and the cluster takes an incarnation above its own and above every one
that is known, so that no token is issued twice. What was granted after the snapshot is not known
to it: name every store with --store, which is asked for its largest floor, or give the number
with --incarnation. A store that belongs to another cluster is refused. Without either a random
step is taken, which two restores of one snapshot take differently. The cluster keeps its name:
stores need not be adopted. Tickets of the old life verify no more.

Then start the node, and let the others join with empty folders.`,
		Example: `  lychgate cluster restore --config n1.yaml --snapshot backup.lychgate --store postgres://postgres@db/app
  lychgate cluster restore --config n2.yaml --survivor --incarnation 12`,
		Args: named(),
	}
	from.add(cmd, map[string]string{"node": "node", "dir": "dir"})
	cmd.Flags().StringVar(&how.Snapshot, "snapshot", "", "`file` that \"lychgate cluster snapshot save\" wrote")
	cmd.Flags().BoolVar(&survivor, "survivor", false, "take what the node's folder holds")
	cmd.Flags().Uint32Var(&how.Incarnation, "incarnation", 0, "`number` of the cluster's new life, above every earlier one (default: chosen)")
	cmd.Flags().StringArrayVar(&stores, "store", nil, "`dsn` of a fenced PostgreSQL database whose floors to stay above; may be repeated")
	jsonFlag(cmd, &asJSON)
	cmd.MarkFlagsOneRequired("snapshot", "survivor")
	cmd.MarkFlagsMutuallyExclusive("snapshot", "survivor")
	completes(cmd, "incarnation")
	completes(cmd, "store")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := from.source(cmd)
		if err != nil {
			return err
		}
		c, err := loadCoordinator(src)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("incarnation") && how.Incarnation == 0 {
			return usageError("--incarnation 0 is that of a new cluster, and above none: leave the flag out to have one chosen")
		}
		for _, dsn := range stores {
			if err := askStore(cmd.Context(), dsn, &how); err != nil {
				return err
			}
		}
		if len(stores) == 0 && how.Incarnation == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "no store is asked: if tokens were issued after what is restored, name the stores with --store")
		}
		made, err := coordinator.Recover(c, how)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), made)
		}
		return printRecovered(cmd.OutOrStdout(), c, made)
	}
	return cmd
}

// askStore adds what a store knows: the incarnation of the largest token that it has accepted, and of which cluster.
func askStore(ctx context.Context, dsn string, how *coordinator.Recovery) (err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("store: %w", throughProxy(err))
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	db := conn.Config()
	name := fmt.Sprintf("%s at %s:%d", db.Database, db.Host, db.Port)
	state, err := fencesql.Status(ctx, conn)
	if err != nil {
		return fmt.Errorf("store %s: %w", name, throughProxy(err))
	}
	if !state.Installed {
		return fmt.Errorf("store %s: %w", name, fencesql.ErrNotInstalled)
	}
	largest, err := fencesql.LargestFloor(ctx, conn)
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	how.Known = append(how.Known, lease.Token(largest).Incarnation())
	if state.Cluster != "" { // else no ticket was ever shown to it
		if how.Pinned == nil {
			how.Pinned = make(map[string]string)
		}
		how.Pinned[name] = state.Cluster
	}
	return nil
}

func printRecovered(w io.Writer, c coordinator.Config, made coordinator.Recovered) error {
	err := printPairs(w,
		"cluster", made.Cluster,
		"member", made.Node+", the only one",
		"incarnation", fmt.Sprintf("%d (known before: %d)", made.Incarnation, made.Before),
		"ended", fmt.Sprintf("%d leases and waits", made.Ended))
	if err != nil {
		return err
	}
	if len(made.Aside) > 0 {
		if _, err := fmt.Fprintf(w, "what the folder held is in %s\n", strings.Join(made.Aside, ", ")); err != nil {
			return err
		}
	}
	var rest strings.Builder
	for _, m := range c.Members {
		if m.ID != made.Node {
			fmt.Fprintf(&rest, "  empty the folder of %s, start it, then: lychgate cluster join %s --peer %s --grpc %s --http %s\n",
				m.ID, m.ID, m.Peer, m.GRPC, m.HTTP)
		}
	}
	_, err = fmt.Fprintf(w, "next:\n  start %s\n%s", made.Node, rest.String())
	return err
}
