package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// holds reports whether a lock is held under the lease, by the part of its id that others may see.
func holds(lock *lockpb.Lock, id lease.ID) bool {
	return slices.ContainsFunc(lock.GetHolders(), func(h *lockpb.Holder) bool {
		return h.GetLeaseHash() == id.Hash().String()
	})
}

func lockGetCommand(to *target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get RESOURCE",
		Short: "Tell who holds a lock and who waits for it",
		Long: `Tell who holds a lock and who waits for it. The answer comes from a quorum; without one there is
none. Lease ids are not shown.`,
		Example: `  lychgate lock get ledger/eu
  lychgate lock get ledger/eu --json`,
		Args: named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, lockText)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func lockListCommand(to *target) *cobra.Command {
	var asJSON bool
	var prefix, after string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held or waited for",
		Long: `List the locks that are held or waited for, in the order of their names. All of them, unless
--limit asks for one page.`,
		Example: `  lychgate lock list --prefix ledger/
  lychgate lock list --limit 100 --after ledger/eu --json`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || limit > pageSize {
				return usageError("--limit %d is not within 0 and %d", limit, pageSize)
			}
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				resp, err := listPages(ctx, c, prefix, after, limit)
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, listText)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&prefix, "prefix", "", "only names that begin with this `text`")
	cmd.Flags().StringVar(&after, "after", "", "only names after this `name`")
	cmd.Flags().IntVar(&limit, "limit", 0, "one page of at most this `number` (default: all pages)")
	return cmd
}

// pageSize is the largest page that the API gives.
const pageSize = 1000

// listPages reads one page of limit, or with limit 0 all of them into one answer.
func listPages(ctx context.Context, c *client.Client, prefix, after string, limit int) (*lockpb.ListResponse, error) {
	if limit > 0 {
		return c.List(ctx, prefix, after, limit)
	}
	all := &lockpb.ListResponse{Next: after}
	for {
		page, err := c.List(ctx, prefix, all.GetNext(), pageSize)
		if err != nil {
			return nil, err
		}
		all.Locks = append(all.Locks, page.GetLocks()...)
		if all.Revision == "" {
			all.Revision = page.GetRevision() // a watch from the first page's misses nothing of all of them
		}
		all.Next, all.AsOf, all.Index = page.GetNext(), page.GetAsOf(), page.GetIndex()
		if all.GetNext() == "" {
			return all, nil
		}
	}
}

func lockBreakCommand(to *target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "break RESOURCE",
		Short: "End a lock by force, so that another can take it",
		Long: `End a lock by force: its lease ends at once, a token is issued to nobody, so that every later
one is larger, and the next waiter is granted. It is written to the audit log. The holder
learns of it at its next renewal.

Proxies that watch the coordinator end the old holder's sessions at once, and refuse its
ticket. Where none does, the ticket is refused from the first contact of a newer one with the
store. To shut it out now, make that contact: "lychgate run RESOURCE -- true" takes the lock
and is the newer holder.`,
		Example: "  lychgate lock break ledger/eu",
		Args:    named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Break(ctx, args[0])
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, breakText(args[0]))
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
