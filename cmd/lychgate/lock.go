package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
)

// Exit codes of the commands that take or keep a lock.
const (
	exitNotObtained = 75 // EX_TEMPFAIL of sysexits.h: try again later
	exitLeaseEnded  = 3
)

func lockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Take, keep, give back and look at locks",
		Long: `Take, keep, give back and look at locks, for scripts and for people. A lock taken here is
renewed by nobody: renew it before its TTL runs out, or use "lychgate run", which does so
for as long as a command runs.

Exit codes:
  0   done
  1   failed
  2   called wrongly
  3   renew, release: the lease has ended
  75  acquire: the lock was not obtained; it may be later`,
	}
	var to target
	to.add(cmd)
	cmd.AddCommand(lockAcquireCommand(&to), lockRenewCommand(&to), lockReleaseCommand(&to),
		lockGetCommand(&to), lockListCommand(&to), lockBreakCommand(&to))
	return cmd
}

// patience is how long a command is repeated while no coordinator can serve it: long enough for an election,
// short enough for somebody who mistyped the address.
const patience = 5 * time.Second

// target is where the coordinators are.
type target struct{ addrs []string }

// add gives a command, and those below it, the flag --address.
func (t *target) add(cmd *cobra.Command) {
	addrs := []string{client.DefaultAddr}
	if env := os.Getenv("LYCHGATE_ADDR"); env != "" {
		addrs = strings.Split(env, ",")
	}
	cmd.PersistentFlags().StringSliceVar(&t.addrs, "address", addrs,
		"gRPC `address`es of coordinators; default from LYCHGATE_ADDR")
}

// with calls fn with a client and closes it.
func (t *target) with(ctx context.Context, cfg client.Config, fn func(context.Context, *client.Client) error) error {
	cfg.Addrs, cfg.Patience = t.addrs, patience
	c, err := client.Dial(cfg)
	if err != nil {
		return usageError("%w", err)
	}
	err = fn(ctx, c)
	if closing := c.Close(); err == nil {
		err = closing
	}
	return explain(err, t.addrs)
}
