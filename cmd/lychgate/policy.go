package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "See and set what resources and tenants may do",
		Long: `See and set what the resources with a prefix, or the identities of a tenant, may do. A field that
a policy does not set is that of the next shorter prefix, at last the cluster's own. A change
counts from then on; leases that are held stay as they are until their next renewal.`,
	}
	var to target
	to.add(cmd)
	cmd.AddCommand(policyListCommand(&to), policySetCommand(&to), policyDeleteCommand(&to))
	return cmd
}

// administer makes a call at one coordinator, or at the next if that one does not answer. The call has to be one that may
// be made twice.
func (t *target) administer(ctx context.Context, call func(context.Context, lockpb.ClusterClient) error) error {
	return t.with(ctx, client.Config{}, func(ctx context.Context, c *client.Client) (err error) {
		for range t.addrs {
			if err = call(ctx, c.Cluster()); !errors.Is(err, client.ErrUnreachable) {
				return err
			}
		}
		return err
	})
}

func policyListCommand(to *target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the policies",
		Example: "  lychgate policy list\n  lychgate policy list --json",
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := c.Policies(ctx, &lockpb.PoliciesRequest{})
				if err != nil {
					return err
				}
				return printMessage(cmd.OutOrStdout(), asJSON, answer, policiesText)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func policiesText(w io.Writer, r *lockpb.PoliciesResponse) error {
	var rows [][]string
	for _, p := range r.GetPolicies() {
		of := "tenant " + strconv.Quote(p.GetTenant())
		if _, ok := p.GetOf().(*lockpb.Policy_Prefix); ok {
			of = "prefix " + strconv.Quote(p.GetPrefix())
		}
		rows = append(rows, []string{of, strings.Join(policyFields(p), " ")})
	}
	if len(rows) == 0 {
		if _, err := fmt.Fprintln(w, "no policies: the cluster's own bounds count for everybody"); err != nil {
			return err
		}
	} else if err := printTable(w, []string{"OF", "POLICY"}, rows); err != nil {
		return err
	}
	for _, group := range r.GetBehind() {
		if _, err := fmt.Fprintf(w, "group %d has others: a change has reached only some groups, make it once more\n", group); err != nil {
			return err
		}
	}
	return nil
}

// policyFields are the fields that a policy sets, as the flags that set them.
func policyFields(p *lockpb.Policy) []string {
	var out []string
	for _, d := range []struct {
		flag string
		ms   *int64
	}{
		{"--default-ttl", p.DefaultTtl},
		{"--min-ttl", p.MinTtl},
		{"--max-ttl", p.MaxTtl},
		{"--max-hold", p.MaxHold},
		{"--lock-delay", p.LockDelay},
	} {
		if d.ms != nil {
			out = append(out, d.flag+" "+millis(int32(*d.ms)))
		}
	}
	if p.MaxWaiters != nil {
		out = append(out, "--max-waiters "+strconv.Itoa(int(p.GetMaxWaiters())))
	}
	if p.Exclusive != nil || p.Shared != nil {
		out = append(out, "--modes "+strings.Join(policyModes(p), ","))
	}
	for _, n := range []struct {
		flag  string
		count *int64
	}{{"--max-leases", p.MaxLeases}, {"--max-requests", p.MaxRequests}, {"--acquire-rate", p.AcquireRate}, {"--burst", p.AcquireBurst}} {
		if n.count != nil {
			out = append(out, n.flag+" "+strconv.FormatInt(*n.count, 10))
		}
	}
	return out
}

func policyModes(p *lockpb.Policy) (modes []string) {
	if p.Exclusive == nil || p.GetExclusive() {
		modes = append(modes, "exclusive")
	}
	if p.Shared == nil || p.GetShared() {
		modes = append(modes, "shared")
	}
	return modes
}

func policyDeleteCommand(to *target) *cobra.Command {
	var of policyOf
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Take a policy away",
		Long: `Take the policy of a prefix or of a tenant away. What it covered falls back to the next shorter
prefix, at last to the cluster's own bounds.`,
		Example: "  lychgate policy delete --prefix ledger/\n  lychgate policy delete --tenant acme",
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.administer(cmd.Context(), func(ctx context.Context, c lockpb.ClusterClient) error {
				answer, err := c.DeletePolicy(ctx, of.deletion(cmd))
				if err != nil {
					return inPolicyFlags(err)
				}
				return printMessage(cmd.OutOrStdout(), asJSON, answer, func(w io.Writer, r *lockpb.DeletePolicyResponse) error {
					text := "the policy was deleted"
					if !r.GetExisted() {
						text = "there was no such policy"
					}
					_, err := fmt.Fprintln(w, text)
					return err
				})
			})
		},
	}
	of.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// policyOf is the flags that say whose a policy is.
type policyOf struct{ prefix, tenant string }

func (p *policyOf) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.prefix, "prefix", "", "of the resources whose names begin with this `text`; \"\" is every resource")
	cmd.Flags().StringVar(&p.tenant, "tenant", "", "of the identities of this `tenant`, the part before \":\"; \"\" is those without one")
	cmd.MarkFlagsOneRequired("prefix", "tenant")
	cmd.MarkFlagsMutuallyExclusive("prefix", "tenant")
}

func (p *policyOf) deletion(cmd *cobra.Command) *lockpb.DeletePolicyRequest {
	if cmd.Flags().Changed("tenant") {
		return &lockpb.DeletePolicyRequest{Of: &lockpb.DeletePolicyRequest_Tenant{Tenant: p.tenant}}
	}
	return &lockpb.DeletePolicyRequest{Of: &lockpb.DeletePolicyRequest_Prefix{Prefix: p.prefix}}
}

func (p *policyOf) policy(cmd *cobra.Command) *lockpb.Policy {
	if cmd.Flags().Changed("tenant") {
		return &lockpb.Policy{Of: &lockpb.Policy_Tenant{Tenant: p.tenant}}
	}
	return &lockpb.Policy{Of: &lockpb.Policy_Prefix{Prefix: p.prefix}}
}

// inPolicyFlags says a refusal of a policy in the words of the command line.
func inPolicyFlags(err error) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Field == "" {
		return err
	}
	e.Message = durations(policyWords.Replace(e.Message))
	e.Hint = ""
	return e
}

var policyWords = strings.NewReplacer(
	"default_ttl", "--default-ttl", "min_ttl", "--min-ttl", "max_ttl", "--max-ttl", "max_hold", "--max-hold",
	"lock_delay", "--lock-delay", "max_waiters", "--max-waiters", "max_leases", "--max-leases", "max_requests", "--max-requests",
	"acquire_rate", "--acquire-rate", "acquire_burst", "--burst")
