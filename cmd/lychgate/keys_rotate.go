package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func keysRotateCommand() *cobra.Command {
	var to target
	var overlap time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Give every node a new key for its tickets",
		Long: `Give every node that can be reached a new private key for its tickets, and retire the old ones.
The old private keys are gone at once; what they signed verifies until the overlap is over. By
default that is the cluster's longest TTL and longest wait together: a lease that is renewed
gets a ticket of the new key in between. With a shorter one, after a key has leaked say, holders
whose ticket is of an old key are refused by stores until they renew.

Exit code 1 if a node was missed: its key stays. The command may be repeated.`,
		Example: `  lychgate keys rotate
  lychgate keys rotate --overlap 1m`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("overlap") && (overlap < time.Millisecond || overlap > maxOverlap) {
				return usageError("--overlap %s is not between 1ms and %s", overlap, maxOverlap)
			}
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := c.Rotate(ctx, &lockpb.RotateRequest{Overlap: overlap.Milliseconds()})
				if err != nil {
					return err
				}
				return printRotation(cmd.OutOrStdout(), asJSON, answer)
			})
		},
	}
	to.add(cmd)
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "`duration` for which old keys still verify (default: longest TTL + longest wait)")
	completes(cmd, "overlap")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// maxOverlap is what an int32 of milliseconds holds.
const maxOverlap = time.Duration(1<<31-1) * time.Millisecond

// rotation is what --json prints of a rotation.
type rotation struct {
	Keys   []keyRow `json:"keys"`
	Missed []string `json:"missed"` // nodes
}

func printRotation(w io.Writer, asJSON bool, answer *lockpb.RotateResponse) error {
	missed := append([]string{}, answer.GetMissed()...)
	var err error
	if asJSON {
		err = printJSON(w, rotation{keyRows(answer.GetKeys()), missed})
	} else {
		err = printKeys(w, answer.GetKeys())
	}
	if err != nil {
		return err
	}
	if len(missed) > 0 {
		return fmt.Errorf("the keys of %s stay as they were: the nodes could not be reached, or could not do it; "+
			"see to them and rotate again", strings.Join(missed, ", "))
	}
	return nil
}
