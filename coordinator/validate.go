package coordinator

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// FieldError says which key of a Config is wrong, and why.
type FieldError struct {
	Field  string // as in YAML: "lease.min_ttl", "members[1].grpc"
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// faults collects what is wrong, so that a person sees all of it at once.
type faults []*FieldError

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, &FieldError{field, fmt.Sprintf(format, args...)})
}

// Validate reports everything that is wrong with c, each as a *FieldError (errors.Join). It does no I/O.
func (c Config) Validate() error {
	var f faults
	c.validateMembers(&f)
	if c.Dir == "" {
		f.add("dir", "is missing")
	}
	if c.Groups < 1 || c.Groups > lease.MaxGroups {
		f.add("groups", "%d is not between 1 and %d", c.Groups, lease.MaxGroups)
	}
	c.validateTiming(&f)
	c.validateLease(&f)
	c.validateRest(&f)
	c.validateSecurity(&f)
	slices.SortStableFunc(f, func(a, b *FieldError) int { return strings.Compare(a.Field, b.Field) })
	return f.joined()
}

func (f faults) joined() error {
	all := make([]error, len(f))
	for i, fault := range f {
		all[i] = fault
	}
	return errors.Join(all...)
}

func (c Config) validateMembers(f *faults) {
	if c.Node == "" {
		f.add("node", "is missing")
	} else if _, ok := c.member(c.Node); !ok {
		f.add("node", "%q is not the id of a member", c.Node)
	}
	if len(c.Members) == 0 {
		f.add("members", "is empty")
	}
	seen := map[string]string{}
	for i, m := range c.Members {
		at := "members[" + strconv.Itoa(i) + "]."
		if _, err := lease.ParseClientID(m.ID); err != nil {
			f.add(at+"id", "%q is not a name of letters, digits and ._:@/+=-", m.ID)
		}
		unique(f, seen, at+"id", "id "+m.ID)
		for _, a := range [][2]string{{"peer", m.Peer}, {"grpc", m.GRPC}, {"http", m.HTTP}} {
			field, address := a[0], a[1]
			if reason := addressFault(address); reason != "" {
				f.add(at+field, "%s", reason)
				continue
			}
			unique(f, seen, at+field, "address "+address)
		}
	}
	for field, address := range map[string]string{"peer": c.Listen.Peer, "grpc": c.Listen.GRPC, "http": c.Listen.HTTP} {
		if reason := addressFault(address); address != "" && reason != "" {
			f.add("listen."+field, "%s", reason)
		}
	}
}

func unique(f *faults, seen map[string]string, field, what string) {
	if earlier := seen[what]; earlier != "" {
		f.add(field, "the %s is also %s", what, earlier)
		return
	}
	seen[what] = field
}

func addressFault(address string) string {
	if address == "" {
		return "is missing"
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("%q: the port is not a number from 0 to 65535", address)
	}
	return ""
}

func (c Config) validateTiming(f *faults) {
	t := c.Timing
	positive(f, map[string]time.Duration{
		"timing.heartbeat": t.Heartbeat, "timing.election": t.Election, "timing.leader_lease": t.LeaderLease,
		"timing.commit": t.Commit, "timing.call": t.Call, "timing.disk": t.Disk, "timing.stuck": t.Stuck,
	})
	if t.Election < t.Heartbeat {
		f.add("timing.election", "%s is below timing.heartbeat %s", t.Election, t.Heartbeat)
	}
	if t.LeaderLease > t.Heartbeat {
		f.add("timing.leader_lease", "%s is above timing.heartbeat %s: a deposed leader would serve beside its successor", t.LeaderLease, t.Heartbeat)
	}
	if least := t.Failover() + t.Commit; t.Call < least {
		f.add("timing.call", "%s is below failover + commit = %s: every election would be an error to callers", t.Call, least)
	}
	if t.Commit > t.Heartbeat {
		f.add("timing.commit", "%s is above timing.heartbeat %s", t.Commit, t.Heartbeat)
	}
	if least := 2 * t.Heartbeat; t.Disk > 0 && t.Disk < least {
		f.add("timing.disk", "%s is below 2 × timing.heartbeat = %s: a disk that is busy for a moment would cost more than the loss of its node", t.Disk, least)
	}
	if t.Stuck > 0 && t.Stuck < t.Disk {
		f.add("timing.stuck", "%s is below timing.disk %s: a replica whose disk hangs would be told to be stuck", t.Stuck, t.Disk)
	}
}

func (c Config) validateLease(f *faults) {
	l := c.Lease
	positive(f, map[string]time.Duration{
		"lease.default_ttl": l.DefaultTTL, "lease.min_ttl": l.MinTTL, "lease.max_ttl": l.MaxTTL,
		"lease.max_wait": l.MaxWait, "lease.retry_window": l.RetryWindow, "lease.grace": l.Grace,
		"lease.claim_window": l.ClaimWindow, "lease.head_start": l.HeadStart,
	})
	if least := 3 * (c.Timing.Failover() + c.Timing.Commit); l.MinTTL < least {
		f.add("lease.min_ttl", "%s is below 3 × (failover %s + commit %s) = %s: one election could cost a holder its lease",
			l.MinTTL, c.Timing.Failover(), c.Timing.Commit, least)
	}
	if l.DefaultTTL < l.MinTTL || l.DefaultTTL > l.MaxTTL {
		f.add("lease.default_ttl", "%s is not between lease.min_ttl %s and lease.max_ttl %s", l.DefaultTTL, l.MinTTL, l.MaxTTL)
	}
	if l.MaxTTL < l.MinTTL {
		f.add("lease.max_ttl", "%s is below lease.min_ttl %s", l.MaxTTL, l.MinTTL)
	}
	for field, d := range map[string]time.Duration{"lease.max_ttl": l.MaxTTL, "lease.max_wait": l.MaxWait} {
		if d > maxDuration {
			f.add(field, "%s is above %s, the most that the API can say in milliseconds", d, maxDuration)
		}
	}
	if least := c.Timing.Failover() + c.Timing.Commit; l.Grace < least {
		f.add("lease.grace", "%s is below failover + commit = %s: an election would empty every queue", l.Grace, least)
	}
	if least := c.Timing.Failover() + c.Timing.Commit; l.ClaimWindow < least {
		f.add("lease.claim_window", "%s is below failover + commit = %s: an election could take a new grant back", l.ClaimWindow, least)
	}
	counts(f, map[string]int64{
		"lease.max_waiters": int64(l.MaxWaiters), "lease.max_requests": int64(l.MaxRequests), "lease.max_expiries": int64(l.MaxExpiries),
		"lease.max_tenant_requests": int64(l.MaxTenantRequests),
	})
}

// maxDuration is what an int32 of milliseconds holds: over 24 days.
const maxDuration = time.Duration(1<<31-1) * time.Millisecond

func (c Config) validateRest(f *faults) {
	counts(f, map[string]int64{
		"limits.connections": int64(c.Limits.Connections), "limits.calls": int64(c.Limits.Calls),
		"audit.max_bytes": c.Audit.MaxBytes, "audit.keep": int64(c.Audit.Keep),
	})
	validateLog(f, c.Log)
}

func validateLog(f *faults, log Log) {
	switch log.Level {
	case "debug", "info", "warn", "error":
	default:
		f.add("log.level", "%q is not one of debug, info, warn, error", log.Level)
	}
	switch log.Format {
	case "text", "json":
	default:
		f.add("log.format", "%q is not one of text, json", log.Format)
	}
}

func positive(f *faults, fields map[string]time.Duration) {
	for field, d := range fields {
		if d <= 0 {
			f.add(field, "%s is not positive", d)
		}
	}
}

func counts(f *faults, fields map[string]int64) {
	for field, n := range fields {
		if n <= 0 {
			f.add(field, "%d is not positive", n)
		}
	}
}
