package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// leaseFlag is the lease id that a command works with.
type leaseFlag struct{ raw string }

func (f *leaseFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.raw, "lease", os.Getenv("LYCHGATE_LEASE"),
		"lease `id` that acquire printed; default from LYCHGATE_LEASE, which others on this machine cannot see")
	cmd.Flags().Lookup("lease").DefValue = "" // help must not print the secret
}

func (f *leaseFlag) id() (lease.ID, error) {
	if f.raw == "" {
		return lease.ID{}, usageError("--lease is missing: the lease id that acquire printed")
	}
	id, err := lease.ParseID(f.raw)
	if err != nil {
		return lease.ID{}, usageError("--lease: %w", err)
	}
	return id, nil
}

func lockRenewCommand(to *target) *cobra.Command {
	var asJSON bool
	var which leaseFlag
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew RESOURCE --lease ID",
		Short: "Keep a lock for another TTL",
		Long: `Keep a lock for another TTL, counted from now, and print a fresh ticket. A lease that has ended is
not brought back: exit code 3.`,
		Example: `  lychgate lock renew ledger/eu --lease 00b1f0c4… --ttl 1m
  LYCHGATE_LEASE=00b1f0c4… lychgate lock renew ledger/eu`,
		Args: named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := which.id()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("ttl") && ttl < time.Millisecond {
				return usageError("--ttl %v is below a millisecond", ttl)
			}
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				resp, err := c.RenewLease(ctx, id, ttl)
				if err != nil {
					return err
				}
				if resp.GetResource() != args[0] {
					return usageError("the lease is of %s, not of %s; it was renewed", resp.GetResource(), args[0])
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, grantText)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	which.add(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "new `duration` of the lease (default: as it was)")
	return cmd
}

func lockReleaseCommand(to *target) *cobra.Command {
	var asJSON bool
	var which leaseFlag
	cmd := &cobra.Command{
		Use:   "release RESOURCE --lease ID",
		Short: "Give a lock back",
		Long: `Give a lock back, so that the next waiter gets it at once. Stop the work first. A lease that has
ended already gives exit code 3.`,
		Example: `  LYCHGATE_LEASE=$(lychgate lock acquire ledger/eu --print lease)
  export LYCHGATE_LEASE; ./work; lychgate lock release ledger/eu`,
		Args: named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := which.id()
			if err != nil {
				return err
			}
			return to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				held, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				if !holds(held.GetLock(), id) {
					return &exitError{Code: exitLeaseEnded, Err: fmt.Errorf(
						"release %s: it is not held under this lease: it has ended, or is of another resource", args[0])}
				}
				resp, err := c.ReleaseLease(ctx, id)
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, resp, releaseText(args[0]))
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	which.add(cmd)
	return cmd
}
