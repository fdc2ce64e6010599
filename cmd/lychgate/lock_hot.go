package main

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func lockHotCommand(to *target) *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "hot",
		Short: "List the locks that are asked for most",
		Long: `List the locks that are asked for most, hottest first: how often lately, how many of these requests
were refused or waited in vain, who holds and awaits them now, and how long they are held and
waited for on average. What happened a minute ago counts half. Where all locks are asked for
alike, none is hot.`,
		Example: "  lychgate lock hot --limit 20",
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 100 {
				return usageError("--limit %d is not within 1 and 100", limit)
			}
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Hot(ctx, limit)
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, hotText)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&limit, "limit", 10, "at most this `number`, 1 to 100")
	return cmd
}

func hotText(w io.Writer, r *lockpb.HotResponse) error {
	rows := make([][]string, 0, len(r.GetResources()))
	for _, h := range r.GetResources() {
		rows = append(rows, []string{
			h.GetResource(), strconv.FormatUint(h.GetAcquires(), 10), strconv.FormatUint(h.GetRefusals(), 10),
			strconv.Itoa(int(h.GetHolders())), strconv.Itoa(int(h.GetWaiting())), millis(h.GetMeanHeldFor()), millis(h.GetMeanWaited()),
		})
	}
	return printTable(w, []string{"RESOURCE", "ACQUIRES", "REFUSED", "HOLDERS", "WAITING", "MEAN HOLD", "MEAN WAIT"}, rows)
}
