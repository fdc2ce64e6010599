package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func policySetCommand(to *target) *cobra.Command {
	var of policyOf
	var set policyFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the policy of a prefix or of a tenant",
		Long: `Set the policy of the resources with a prefix, or of the identities of a tenant, in place of the
one that it has: a field that is not given is not set. Bounds of TTLs lie within the cluster's
own. With several groups a tenant's bounds count in each group for itself.

The command may be repeated: if it failed in some groups, it says in which.`,
		Example: `  lychgate policy set --prefix ledger/ --max-ttl 1m --max-hold 1h --lock-delay 5s
  lychgate policy set --prefix config/ --modes exclusive,shared --max-waiters 100
  lychgate policy set --tenant acme --max-leases 1000 --acquire-rate 50 --burst 100`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy := of.policy(cmd)
			if err := set.fill(cmd.Flags(), policy); err != nil {
				return err
			}
			if proto.Equal(policy, of.policy(cmd)) {
				return usageError("the policy sets nothing: give a field such as --max-ttl or --max-leases; lychgate policy delete takes one away")
			}
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				if _, err := c.PutPolicy(ctx, &lockpb.PutPolicyRequest{Policy: policy}); err != nil {
					return inPolicyFlags(err)
				}
				for _, doubt := range policyDoubts(policy) {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+doubt)
				}
				return printMessage(cmd.OutOrStdout(), asJSON, policy, func(w io.Writer, p *lockpb.Policy) error {
					return policiesText(w, &lockpb.PoliciesResponse{Policies: []*lockpb.Policy{p}})
				})
			})
		},
	}
	of.add(cmd)
	set.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// policyDoubts says where a policy cuts what an acquire that names no TTL gets. Without a default TTL of its own the policy has
// an inherited one, of which the cluster's is not known here; it is taken for what it is unless it is configured.
func policyDoubts(p *lockpb.Policy) (doubts []string) {
	usual, whose := coordinator.DefaultConfig().Lease.DefaultTTL, "the default TTL, "+coordinator.DefaultConfig().Lease.DefaultTTL.String()+" unless another one is configured"
	if p.DefaultTtl != nil {
		usual, whose = time.Duration(p.GetDefaultTtl())*time.Millisecond, "--default-ttl"
	}
	if longest := time.Duration(p.GetMaxTtl()) * time.Millisecond; p.MaxTtl != nil && p.DefaultTtl == nil && longest < usual {
		doubts = append(doubts, fmt.Sprintf("--max-ttl %s is below %s: who names no TTL gets %s", longest, whose, longest))
		usual, whose = longest, "--max-ttl"
	}
	if hold := time.Duration(p.GetMaxHold()) * time.Millisecond; hold != 0 && hold < usual {
		doubts = append(doubts, fmt.Sprintf("--max-hold %s is below %s: leases end after %s, and cannot be renewed", hold, whose, hold))
	}
	return doubts
}

// policyFlags is the flags that set the fields of a policy.
type policyFlags struct {
	defaultTTL, minTTL, maxTTL, maxHold, lockDelay time.Duration

	modes                  []string
	maxWaiters             int32
	maxLeases, rate, burst int64
	maxRequests            int64
}

func (f *policyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.defaultTTL, "default-ttl", 0, "prefix: TTL of an acquire that names none")
	flags.DurationVar(&f.minTTL, "min-ttl", 0, "prefix: shortest TTL")
	flags.DurationVar(&f.maxTTL, "max-ttl", 0, "prefix: longest TTL")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "prefix: a lease is not renewed beyond it; 0 is without end")
	flags.DurationVar(&f.lockDelay, "lock-delay", 0, "prefix: how long a resource stays closed after a lease expired")
	flags.StringSliceVar(&f.modes, "modes", nil, "prefix: the `modes` that are granted, of exclusive and shared")
	flags.Int32Var(&f.maxWaiters, "max-waiters", 0, "prefix: waiters of one resource; tenant: all of its")
	flags.Int64Var(&f.maxLeases, "max-leases", 0, "tenant: leases and waiters")
	flags.Int64Var(&f.maxRequests, "max-requests", 0, "tenant: remembered requests, those of leases and waits included")
	flags.Int64Var(&f.rate, "acquire-rate", 0, "tenant: acquires per second")
	flags.Int64Var(&f.burst, "burst", 0, "tenant: acquires at once after a pause (default: as many as in one second)")
	completes(cmd, "modes", "exclusive", "shared", "exclusive,shared")
}

// fill sets the fields whose flags were given.
func (f *policyFlags) fill(flags *pflag.FlagSet, p *lockpb.Policy) error {
	for _, d := range []struct {
		flag  string
		given time.Duration
		field **int64
	}{
		{"default-ttl", f.defaultTTL, &p.DefaultTtl},
		{"min-ttl", f.minTTL, &p.MinTtl},
		{"max-ttl", f.maxTTL, &p.MaxTtl},
		{"max-hold", f.maxHold, &p.MaxHold},
		{"lock-delay", f.lockDelay, &p.LockDelay},
	} {
		if !flags.Changed(d.flag) {
			continue
		}
		if d.given%time.Millisecond != 0 {
			return usageError("--%s %s is not whole milliseconds", d.flag, d.given)
		}
		*d.field = proto.Int64(d.given.Milliseconds())
	}
	for _, n := range []struct {
		flag  string
		given int64
		field **int64
	}{{"max-leases", f.maxLeases, &p.MaxLeases}, {"max-requests", f.maxRequests, &p.MaxRequests}, {"acquire-rate", f.rate, &p.AcquireRate}, {"burst", f.burst, &p.AcquireBurst}} {
		if flags.Changed(n.flag) {
			*n.field = proto.Int64(n.given)
		}
	}
	if flags.Changed("max-waiters") {
		p.MaxWaiters = proto.Int32(f.maxWaiters)
	}
	return f.fillModes(flags, p)
}

func (f *policyFlags) fillModes(flags *pflag.FlagSet, p *lockpb.Policy) error {
	if !flags.Changed("modes") {
		return nil
	}
	p.Exclusive, p.Shared = proto.Bool(false), proto.Bool(false)
	for _, mode := range f.modes {
		switch mode {
		case "exclusive":
			p.Exclusive = proto.Bool(true)
		case "shared":
			p.Shared = proto.Bool(true)
		default:
			return usageError("--modes: %q is not exclusive or shared", mode)
		}
	}
	if len(f.modes) == 0 {
		return usageError("--modes is empty: nothing could be acquired")
	}
	return nil
}
