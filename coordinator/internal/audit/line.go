package audit

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// line is one line of the audit log. It holds no lease id, no ticket and no payload.
type line struct {
	Time      time.Time      `json:"time"` // of this node's wall clock, for people
	Node      string         `json:"node"`
	Group     uint16         `json:"group,omitempty"` // of the index; the first group is 0
	From      uint64         `json:"from"`
	Index     uint64         `json:"index"`
	Term      uint64         `json:"term,omitempty"`
	LeaseTime lock.LeaseTime `json:"lease_time,omitempty"`
	More      bool           `json:"more,omitempty"` // another line of the same index follows

	Decision string `json:"decision"`
	Cause    string `json:"cause,omitempty"` // why it ended, or was refused
	Command  string `json:"command,omitempty"`

	Resource string      `json:"resource,omitempty"`
	Lease    string      `json:"lease,omitempty"` // hashed
	Token    lease.Token `json:"token,omitempty"`
	Mode     string      `json:"mode,omitempty"`
	Identity string      `json:"identity,omitempty"`
	Client   string      `json:"client,omitempty"`
	Request  string      `json:"request,omitempty"`
	Leader   string      `json:"leader,omitempty"`
	Key      string      `json:"key,omitempty"`
	Policy   string      `json:"policy,omitempty"`  // what it is about
	Member   string      `json:"member,omitempty"`  // a node that joined or left
	Version  uint32      `json:"version,omitempty"` // of the cluster; the incarnation of "recovered"
	Cycle    []string    `json:"cycle,omitempty"`   // of a deadlock: identity/owner, the victim first
}

// linesOf adds to lines what an entry decided: first what its commands were answered, as far as that is no event, then its
// events, each in order.
func linesOf(lines []line, a *group.Applied, config Config) []line {
	for i, result := range a.Results {
		if many, ok := result.(lock.RenewedMany); ok {
			lines = append(lines, fromMany(a.Commands[i].(lock.RenewMany), many, config.Renewals)...)
			continue
		}
		if l, ok := fromResult(a.Commands[i], result, config.Renewals); ok {
			lines = append(lines, l)
		}
	}
	for _, event := range a.Events {
		lines = append(lines, fromEvent(event))
	}
	now := time.Now().UTC()
	for i := range lines {
		lines[i].Time, lines[i].Node = now, config.Node
		lines[i].Index, lines[i].Term, lines[i].LeaseTime = a.Index, a.Term, a.Now
	}
	return lines
}

func fromResult(cmd lock.Command, result lock.Result, renewals bool) (line, bool) {
	switch r := result.(type) {
	case lock.Refused:
		l := fromCommand(cmd)
		l.Decision, l.Cause, l.Cycle = "refused", r.Reason.String(), cycleOf(r.Cycle)
		return l, true
	case lock.Cancelled:
		l := fromCommand(cmd)
		l.Decision = "cancelled"
		return l, r.Was == lock.RequestUnknown // the rest shows as events
	case lock.Renewed:
		if !renewals { // most commands are renewals: none is described in vain
			return line{}, false
		}
		l := fromGrant(r.Grant)
		l.Decision = "renewed"
		return l, true
	case lock.Granted, lock.Waiting, lock.Released, lock.Broken, lock.Done: // these show as events, or change nothing
	case lock.RenewedMany: // see fromMany
	}
	return line{}, false
}

// fromMany writes a renewal of many leases as what it is, one renewal each. Those that worked need their Grants.
func fromMany(cmd lock.RenewMany, many lock.RenewedMany, renewals bool) []line {
	var lines []line
	for i, r := range many.Renewals {
		switch {
		case r.Refused != nil:
			l, _ := fromResult(lock.Renew{Identity: cmd.Identity, Lease: cmd.Leases[i]}, *r.Refused, renewals)
			lines = append(lines, l)
		case renewals && i < len(many.Grants):
			l := fromGrant(many.Grants[i])
			l.Decision = "renewed"
			lines = append(lines, l)
		}
	}
	return lines
}

func cycleOf(owners []lock.Owner) []string {
	var names []string
	for _, o := range owners {
		names = append(names, o.String())
	}
	return names
}

func fromCommand(cmd lock.Command) line {
	switch c := cmd.(type) {
	case lock.Acquire:
		return line{
			Command: "acquire", Resource: string(c.Resource), Mode: c.Mode.String(),
			Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request),
		}
	case lock.Renew:
		return line{Command: "renew", Identity: string(c.Identity), Lease: c.Lease.Hash().String()}
	case lock.Release:
		return line{Command: "release", Identity: string(c.Identity), Lease: c.Lease.Hash().String()}
	case lock.Cancel:
		return line{Command: "cancel", Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request)}
	case lock.Detach:
		return line{Command: "detach", Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request)}
	case lock.Break:
		return line{Command: "break", Identity: string(c.Identity), Resource: string(c.Resource)}
	case lock.Init:
		return line{Command: "init"}
	case lock.NewLeader:
		return line{Command: "new_leader", Leader: c.Node}
	case lock.PutKey:
		return line{Command: "put_key", Leader: c.Node, Key: c.KeyID}
	case lock.Tick:
		return line{Command: "tick"}
	case lock.RenewMany:
		return line{Command: "renew_many", Identity: string(c.Identity)}
	case lock.KillWait:
		return line{Command: "kill_wait", Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request)}
	case lock.PutPolicy:
		return line{Command: "put_policy", Identity: string(c.By), Policy: c.Target.String()}
	case lock.DeletePolicy:
		return line{Command: "delete_policy", Identity: string(c.By), Policy: c.Target.String()}
	case lock.RetireKey:
		return line{Command: "retire_key", Leader: c.Node, Key: c.KeyID}
	case lock.SetVersion:
		return line{Command: "set_version", Version: c.Version}
	case lock.PutMember:
		return line{Command: "put_member", Member: c.ID}
	case lock.DropMember:
		return line{Command: "drop_member", Member: c.ID}
	case lock.Recover:
		return line{Command: "recover", Version: c.Incarnation}
	}
	return line{}
}

func fromEvent(event lock.Event) line {
	switch e := event.(type) {
	case lock.LeaseGranted:
		l := fromGrant(e.Grant)
		l.Decision = "granted"
		if e.Late {
			l.Cause = "waited"
		}
		return l
	case lock.LeaseEnded:
		return line{
			Decision: "ended", Cause: e.Cause.String(), Resource: string(e.Resource), Lease: e.Hash.String(),
			Token: e.Token, Mode: e.Mode.String(), Identity: string(e.Identity), Client: string(e.Client), Request: string(e.Request),
		}
	case lock.WaitStarted:
		return line{
			Decision: "queued", Resource: string(e.Resource), Mode: e.Mode.String(),
			Identity: string(e.Identity), Client: string(e.Client), Request: string(e.Request),
		}
	case lock.WaitAttached:
		return line{
			Decision: "attached", Resource: string(e.Resource),
			Identity: string(e.Identity), Client: string(e.Client), Request: string(e.Request),
		}
	case lock.WaitDetached:
		return line{
			Decision: "detached", Resource: string(e.Resource),
			Identity: string(e.Identity), Client: string(e.Client), Request: string(e.Request),
		}
	case lock.WaitEnded:
		return line{
			Decision: "wait_ended", Cause: e.Cause.String(), Cycle: cycleOf(e.Cycle), Resource: string(e.Resource),
			Identity: string(e.Identity), Client: string(e.Client), Request: string(e.Request),
		}
	case lock.ResourceBroken:
		return line{Decision: "broken", Resource: string(e.Resource), Token: e.Token, Identity: string(e.By)}
	case lock.KeyAdded:
		return line{Decision: "key_added", Leader: e.Node, Key: e.KeyID}
	case lock.LeaderStarted:
		return line{Decision: "leader_started", Leader: e.Node}
	case lock.KeyRetired:
		return line{Decision: "key_retired", Leader: e.Node, Key: e.KeyID}
	case lock.KeyDropped:
		return line{Decision: "key_dropped", Leader: e.Node, Key: e.KeyID}
	case lock.PolicyChanged:
		if e.Deleted {
			return line{Decision: "policy_deleted", Identity: string(e.By), Policy: e.Target.String()}
		}
		return line{Decision: "policy_put", Identity: string(e.By), Policy: e.Target.String()}
	case lock.VersionRaised:
		return line{Decision: "version_raised", Version: e.Version}
	case lock.MemberChanged:
		if e.Gone {
			return line{Decision: "member_dropped", Member: e.Member.ID}
		}
		return line{Decision: "member_put", Member: e.Member.ID}
	case lock.Recovered:
		return line{Decision: "recovered", Version: e.Incarnation}
	}
	return line{Decision: "unknown"}
}

func fromGrant(g lock.Grant) line {
	return line{
		Resource: string(g.Resource), Lease: g.Lease.Hash().String(), Token: g.Token, Mode: g.Mode.String(),
		Identity: string(g.Identity), Client: string(g.Client), Request: string(g.Request),
	}
}
