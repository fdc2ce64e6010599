package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
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
  75  acquire: the lock was not obtained; it may be later: somebody holds it, or it stays
      closed after its last lease expired (lock delay); the queue, the tenant's leases or its
      rate are at their bound; waiting would be a deadlock; no coordinator answers

With --json an error is JSON too, one object on stderr: {"error": {"reason": …, "message": …}}.`,
	}
	var to target
	to.add(cmd)
	cmd.AddCommand(lockAcquireCommand(&to), lockRenewCommand(&to), lockReleaseCommand(&to),
		lockGetCommand(&to), lockListCommand(&to), lockWatchCommand(&to), lockHotCommand(&to), lockBreakCommand(&to))
	return cmd
}

// patience is how long a command is repeated while no coordinator can serve it: long enough for an election,
// short enough for somebody who mistyped the address.
const patience = 5 * time.Second

// cancelTimeout bounds how long a call that was given up is taken back at the coordinators, which come before the exit.
const cancelTimeout = time.Second

// target is where the coordinators are.
type target struct {
	addrs     []string
	auth      clientAuth
	waitGiven bool // the caller said how long to wait for the lock
}

// add gives a command, and those below it, the flags that say where the coordinators are, and who calls.
func (t *target) add(cmd *cobra.Command) {
	addrs := []string{client.DefaultAddr}
	if env := os.Getenv("LYCHGATE_ADDR"); env != "" {
		addrs = strings.Split(env, ",")
	}
	cmd.PersistentFlags().StringSliceVar(&t.addrs, "address", addrs,
		"gRPC `address`es of coordinators; default from LYCHGATE_ADDR")
	completes(cmd, "address")
	t.auth.add(cmd)
}

// check refuses what can be no address.
func (t *target) check() error {
	for _, addr := range t.addrs {
		if err := checkAddress(addr); err != nil {
			return usageError("--address (or LYCHGATE_ADDR): %w", err)
		}
	}
	return nil
}

func checkAddress(addr string) error {
	if strings.Contains(addr, "://") {
		return fmt.Errorf("%q is a URL; want host:port of the gRPC port, such as %s", addr, client.DefaultAddr)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port, such as %s", addr, client.DefaultAddr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: the port is not a number from 1 to 65535", addr)
	}
	return nil
}

// dial makes a client that gives up soon enough for a person.
func (t *target) dial(cfg client.Config) (*client.Client, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	cfg.Addrs, cfg.Patience, cfg.CancelTimeout = t.addrs, patience, cancelTimeout
	if err := t.auth.into(&cfg); err != nil {
		return nil, err
	}
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return c, nil
}

// with calls fn with a client and closes it.
func (t *target) with(ctx context.Context, cfg client.Config, fn func(context.Context, *client.Client) error) error {
	c, err := t.dial(cfg)
	if err != nil {
		return err
	}
	err = fn(ctx, c)
	if closing := c.Close(); err == nil {
		err = closing
	}
	if err != nil && ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return explain(err, t)
}
