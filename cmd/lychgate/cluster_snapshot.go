package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func clusterSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save the cluster's state into a file, and look at one"}
	cmd.AddCommand(clusterSnapshotSaveCommand(), clusterSnapshotShowCommand())
	return cmd
}

func clusterSnapshotSaveCommand() *cobra.Command {
	var to target
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the state of every group into a file",
		Long: `Save the state of every group into a file, as "lychgate cluster restore" reads it. Everything that
was acknowledged before is in it. The cluster goes on meanwhile. The file has no private keys and
no lease ids that could be used after a restore, but names of resources and clients: it is
readable by its owner only. It is there whole or not at all.`,
		Example: `  lychgate cluster snapshot save backup.lychgate`,
		Args:    named("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Lstat(args[0]); err == nil && !force {
				return usageError("%s exists already; --force replaces it", args[0])
			}
			var saved coordinator.Saved
			err := to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) (err error) {
				saved, err = saveSnapshot(ctx, c, args[0], cmd.ErrOrStderr())
				return streamError("snapshot save", err)
			})
			if err != nil {
				return err
			}
			return printSaved(cmd.OutOrStdout(), asJSON, saved)
		},
	}
	to.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// saveSnapshot streams a snapshot into a file of another name, checks it, and gives it its name.
func saveSnapshot(ctx context.Context, c lockpb.ClusterClient, path string, progress io.Writer) (saved coordinator.Saved, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Save(ctx, &lockpb.SaveRequest{})
	if err != nil {
		return saved, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".part*") // mode 0600
	if err != nil {
		return saved, err
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := receiveSnapshot(stream, f, progress); err != nil {
		return saved, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return saved, err
	}
	if saved, err = coordinator.SkimSnapshot(f); err != nil {
		return saved, fmt.Errorf("what was received: %w", err)
	}
	if err := f.Sync(); err != nil {
		return saved, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return saved, err
	}
	return saved, syncDir(filepath.Dir(path))
}

// streamError is the error of a stream as that of a call.
func streamError(op string, err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	e := &client.Error{Op: op, Code: st.Code(), Message: st.Message()}
	for _, detail := range st.Details() {
		if r, ok := detail.(*lockpb.Refusal); ok {
			e.Reason, e.Applied, e.Hint = r.GetReason(), r.GetApplied(), r.GetHint()
		}
	}
	return e
}

// progressEvery is how often a long save says how far it is.
const progressEvery = time.Second

func receiveSnapshot(stream lockpb.Cluster_SaveClient, to io.Writer, progress io.Writer) error {
	var received int64
	told := time.Now()
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := to.Write(message.GetChunk())
		if err != nil {
			return err
		}
		received += int64(n)
		if time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintf(progress, "%d MiB received\n", received>>20)
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func clusterSnapshotShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Check a snapshot file, and tell what is in it",
		Long: `Check a snapshot file from its first byte to its last, and that this release can read what is in
it; then tell of which cluster it is, and how far it goes. It works without a cluster.`,
		Example: `  lychgate cluster snapshot show backup.lychgate`,
		Args:    named("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return usageError("%s is not there", args[0])
			}
			if err != nil {
				return err
			}
			defer f.Close()
			saved, err := coordinator.CheckSnapshot(f)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return printSaved(cmd.OutOrStdout(), asJSON, saved)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printSaved(w io.Writer, asJSON bool, saved coordinator.Saved) error {
	if asJSON {
		return printJSON(w, saved)
	}
	err := printPairs(w,
		"cluster", saved.Cluster,
		"incarnation", strconv.FormatUint(uint64(saved.Incarnation), 10),
		"version", strconv.FormatUint(uint64(saved.Version), 10),
		"saved at", saved.SavedAt.Format(time.RFC3339)+" by "+saved.Node)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, g := range saved.Groups {
		rows = append(rows, []string{
			strconv.Itoa(int(g.Group)), strconv.FormatUint(g.Index, 10), strconv.FormatUint(g.Term, 10),
			strconv.Itoa(g.Leases), strconv.Itoa(g.Waiters), g.LastToken.String(),
		})
	}
	return printTable(w, []string{"GROUP", "INDEX", "TERM", "LEASES", "WAITERS", "LAST TOKEN"}, rows)
}
