package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func lockAcquireCommand(to *target) *cobra.Command {
	var asJSON bool
	var only string
	var clientID, requestID, mode, owner string
	var progress bool
	var ttl, wait time.Duration
	cmd := &cobra.Command{
		Use:   "acquire RESOURCE",
		Short: "Take a lock and print its lease id, token and ticket",
		Long: `Take a lock and print its lease id, token and ticket. The lease id is a secret: whoever has it
can renew and release the lock. The ticket is what a proxy asks for, as the connection
parameter fence.ticket; that of a shared lock is for reading. Nobody renews the lock: it ends
after its TTL.

Repeating the command with the same --client-id and --request-id is safe: it reports the
lock that the first one took, while it is held, and renews it: whoever has lost an answer gets
a whole TTL.`,
		Example: `  lychgate lock acquire ledger/eu --ttl 1m --wait 10s
  lychgate lock acquire ledger/eu --mode shared
  PGOPTIONS="-c fence.ticket=$(lychgate lock acquire ledger/eu --print ticket)" psql`,
		Args: named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if requestID != "" && clientID == "" {
				return usageError("--request-id needs --client-id, which it belongs to")
			}
			text, err := grantPrinter(only)
			if err != nil {
				return err
			}
			if mode != "exclusive" && mode != "shared" {
				return usageError("--mode %s: known are exclusive and shared", mode)
			}
			to.waitGiven = cmd.Flags().Changed("wait")
			opts := []client.Option{client.Wait(wait)}
			if requestID != "" {
				opts = append(opts, client.RequestID(requestID))
			}
			if cmd.Flags().Changed("ttl") {
				opts = append(opts, client.TTL(ttl))
			}
			if mode == "shared" {
				opts = append(opts, client.Shared())
			}
			if owner != "" {
				opts = append(opts, client.Owner(owner))
			}
			if progress || isTerminal(cmd.ErrOrStderr()) && !cmd.Flags().Changed("progress") {
				opts = append(opts, client.OnProgress(progressText(cmd.ErrOrStderr())))
			}
			return to.with(cmd.Context(), client.Config{ClientID: clientID}, func(ctx context.Context, c *client.Client) error {
				l, err := c.Acquire(ctx, args[0], opts...)
				if err != nil {
					return err
				}
				// Closing the client leaves the lease to whoever reads this.
				return printMessage(cmd.OutOrStdout(), asJSON, l.Describe(), text)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&only, "print", "", "print only the `field`: lease, token or ticket")
	completes(cmd, "print", "lease", "token", "ticket")
	cmd.MarkFlagsMutuallyExclusive("json", "print")
	flags := cmd.Flags()
	flags.StringVar(&clientID, "client-id", "", "`name` to hold the lock under (default: one made for this call)")
	flags.StringVar(&requestID, "request-id", "", "`id` of this request, for repeating it safely (default: random)")
	flags.DurationVar(&ttl, "ttl", 0, "`duration` of the lease (default: the cluster's)")
	flags.StringVar(&mode, "mode", "exclusive", "`mode`: exclusive, or shared with others who take it so")
	completes(cmd, "mode", "exclusive", "shared")
	flags.StringVar(&owner, "owner", "", "`name` of the thread or job that takes it, for finding deadlocks (default: the client's)")
	flags.BoolVar(&progress, "progress", false, "tell on stderr how the queue goes (default: if that is a terminal)")
	flags.DurationVar(&wait, "wait", 0, "`duration` to wait while somebody else holds the lock (default: not at all)")
	return cmd
}

// progressText writes how a wait goes.
func progressText(w io.Writer) func(client.Progress) {
	return func(p client.Progress) {
		line := fmt.Sprintf("waiting at position %d", p.Position)
		if h := p.Holder; h.GetFencingToken() != 0 {
			line += fmt.Sprintf("; held by %s with token %d for %s", h.GetClientId(), h.GetFencingToken(), millis(h.GetHeldFor()))
		}
		fmt.Fprintln(w, line)
	}
}

// grantPrinter writes all of a grant, or only the field that --print names.
func grantPrinter(only string) (func(io.Writer, *lockpb.AcquireResponse) error, error) {
	fields := map[string]func(*lockpb.AcquireResponse) any{
		"lease":  func(r *lockpb.AcquireResponse) any { return r.GetLeaseId() },
		"token":  func(r *lockpb.AcquireResponse) any { return r.GetFencingToken() },
		"ticket": func(r *lockpb.AcquireResponse) any { return r.GetTicket() },
	}
	if only == "" {
		return grantText[*lockpb.AcquireResponse], nil
	}
	field, known := fields[only]
	if !known {
		return nil, usageError("--print %s: known are lease, token and ticket", only)
	}
	return func(w io.Writer, r *lockpb.AcquireResponse) error {
		_, err := fmt.Fprintln(w, field(r))
		return err
	}, nil
}
