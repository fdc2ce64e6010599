package lock_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// formatOutcome writes one line a result, then one an event, indented.
func (s *scenario) formatOutcome(results []lock.Result, events []lock.Event) string {
	var out strings.Builder
	for _, r := range results {
		fmt.Fprintln(&out, s.formatResult(r))
	}
	for _, e := range events {
		fmt.Fprintln(&out, "  "+s.formatEvent(e))
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func (s *scenario) formatResult(r lock.Result) string {
	switch r := r.(type) {
	case lock.Granted:
		if r.Retried {
			return "granted again " + s.formatGrant(r.Grant)
		}
		return "granted " + s.formatGrant(r.Grant)
	case lock.Waiting:
		return fmt.Sprintf("waiting position=%d until=%v behind %s", r.Position, instant(r.Deadline), s.formatHolder(r.Holder))
	case lock.RenewedMany:
		if len(r.Renewals) == 0 {
			return "renewed none"
		}
		var each []string
		for i, renewal := range r.Renewals {
			if renewal.Refused != nil {
				each = append(each, s.formatResult(*renewal.Refused))
				continue
			}
			if g := r.Grants[i]; g.Token != renewal.Token || g.Deadline != renewal.Deadline {
				return fmt.Sprintf("renewed with %+v, and %+v is described", renewal, g)
			}
			each = append(each, s.formatResult(lock.Renewed{Grant: r.Grants[i]}))
		}
		return strings.Join(each, "; ")
	case lock.Renewed:
		return "renewed " + s.formatGrant(r.Grant)
	case lock.Released:
		return "released " + s.formatHolder(r.Holder)
	case lock.Cancelled:
		if r.Was == lock.RequestHeld {
			return "cancelled while held: " + s.formatHolder(r.Holder)
		}
		if r.Was == lock.RequestWaiting {
			return fmt.Sprintf("cancelled while waiting at position=%d behind %s", r.Position, s.formatHolder(r.Blocker))
		}
		return "cancelled while " + r.Was.String()
	case lock.Broken:
		out := fmt.Sprintf("broken token=%v", r.Token)
		for _, h := range r.Ended {
			out += " ended " + s.formatHolder(h)
		}
		return out
	case lock.Done:
		return "done"
	case lock.Refused:
		return "refused " + s.formatRefusal(r)
	}
	return fmt.Sprintf("unknown result %T", r)
}

func (s *scenario) formatRefusal(r lock.Refused) string {
	out := r.Reason.String()
	if r.Holder.Resource != "" {
		out += " by " + s.formatHolder(r.Holder)
	}
	if r.Limit != 0 {
		out += fmt.Sprintf(" limit=%v", r.Limit)
	}
	if r.Count != 0 {
		out += fmt.Sprintf(" limit=%d", r.Count)
	}
	if len(r.Cycle) > 0 {
		out += fmt.Sprintf(" cycle=%v", r.Cycle)
	}
	if r.RetryAfter != 0 {
		out += fmt.Sprintf(" retry after %v", r.RetryAfter)
	}
	return out
}

func (s *scenario) formatEvent(e lock.Event) string {
	switch e := e.(type) {
	case lock.LeaseGranted:
		if e.Late {
			return "lease granted late " + s.formatGrant(e.Grant)
		}
		return "lease granted " + s.formatGrant(e.Grant)
	case lock.LeaseEnded:
		return fmt.Sprintf("lease ended %s/%s %v token=%v", e.Client, e.Request, e.Cause, e.Token)
	case lock.WaitStarted:
		return fmt.Sprintf("wait started %s/%s attached=%v", e.Client, e.Request, e.Attached)
	case lock.WaitAttached:
		return fmt.Sprintf("wait attached %s/%s", e.Client, e.Request)
	case lock.WaitDetached:
		return fmt.Sprintf("wait detached %s/%s", e.Client, e.Request)
	case lock.WaitEnded:
		out := fmt.Sprintf("wait ended %s/%s %v position=%d behind %s", e.Client, e.Request, e.Cause, e.Position, s.formatHolder(e.Blocker))
		if len(e.Cycle) > 0 {
			out += fmt.Sprintf(" cycle=%v", e.Cycle)
		}
		return out
	case lock.ResourceBroken:
		return fmt.Sprintf("resource broken %s token=%v by %s", e.Resource, e.Token, e.By)
	case lock.KeyAdded:
		return fmt.Sprintf("key added %s/%s", e.Node, e.KeyID)
	case lock.LeaderStarted:
		return fmt.Sprintf("leader started %s term=%d", e.Node, e.Term)
	case lock.KeyRetired:
		return fmt.Sprintf("key retired %s/%s until=%v", e.Node, e.KeyID, instant(e.Until))
	case lock.KeyDropped:
		return fmt.Sprintf("key dropped %s/%s", e.Node, e.KeyID)
	case lock.PolicyChanged:
		return fmt.Sprintf("policy changed %v by %s deleted=%v", e.Target, e.By, e.Deleted)
	case lock.VersionRaised:
		return fmt.Sprintf("version raised %d", e.Version)
	case lock.MemberChanged:
		return fmt.Sprintf("member changed %s gone=%v", e.Member.ID, e.Gone)
	case lock.Recovered:
		return fmt.Sprintf("recovered incarnation=%d", e.Incarnation)
	}
	return fmt.Sprintf("unknown event %T", e)
}

func (s *scenario) formatGrant(g lock.Grant) string {
	out := fmt.Sprintf("%s to %s/%s token=%v ttl=%v until=%v", g.Resource, g.Client, s.leaseName(g), g.Token, g.TTL, instant(g.Deadline))
	if g.Mode == lease.Shared {
		out += " shared"
	}
	return out
}

func (s *scenario) formatEdges() string {
	edges, _ := s.live.Edges(100)
	var out strings.Builder
	for _, e := range edges {
		fmt.Fprintf(&out, "%v waits for %v", e.Waiter.Owner, e.Holder.Owner)
		if e.Lease.IsZero() {
			fmt.Fprint(&out, ", who is ahead of it")
		}
		fmt.Fprintln(&out)
	}
	if out.Len() == 0 {
		return "none\n"
	}
	return out.String()
}

// leaseName is the request's id, and the lease's name where that is another.
func (s *scenario) leaseName(g lock.Grant) string {
	if name := s.names[g.Lease]; name != fmt.Sprintf("%s/%s", g.Client, g.Request) {
		return fmt.Sprintf("%s(%s)", g.Request, name)
	}
	return string(g.Request)
}

func (s *scenario) formatHolder(h lock.Holder) string {
	switch {
	case h.Client == "":
		return "nobody"
	case h.Token == 0:
		return fmt.Sprintf("%s, who awaits it", h.Client)
	}
	return fmt.Sprintf("%s token=%v until=%v", h.Client, h.Token, instant(h.Deadline))
}

func (s *scenario) formatView(v lock.View) string {
	var out strings.Builder
	for _, h := range v.Holders {
		fmt.Fprintf(&out, "held by %s\n", s.formatHolder(h))
	}
	for _, w := range v.Waiters {
		fmt.Fprintf(&out, "awaited by %s/%s attached=%v until=%v\n", w.Client, w.Request, w.Attached, instant(w.Deadline))
	}
	if v.ClosedUntil != 0 {
		fmt.Fprintf(&out, "closed until=%v\n", instant(v.ClosedUntil))
	}
	if out.Len() == 0 {
		return "free\n"
	}
	return out.String()
}

func instant(t lock.LeaseTime) time.Duration { return t.Sub(0) }
