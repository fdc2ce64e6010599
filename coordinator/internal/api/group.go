package api

import (
	"context"
	"errors"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Group is the Raft group as the API needs it. *group.Group is one; tests have another.
type Group interface {
	proposer
	reader
	leadership
}

// proposer puts commands into the log. It works on the leader only.
type proposer interface {
	Propose(ctx context.Context, cmd lock.Command) (group.Outcome, error)
	// Await is called before the acquire that may wait is proposed.
	Await(identity lease.Identity, client lease.ClientID, request lease.RequestID) *group.Wait
}

// reader looks at the state.
type reader interface {
	// Read is linearizable, and works on the leader only.
	Read(ctx context.Context, fn func(*lock.Machine)) (group.Outcome, error)
	// View shows this replica's state, which may lag.
	View(fn func(*lock.Machine))
	// Freeze copies this replica's state.
	Freeze() (*lock.Snapshot, lock.Info)
	Status() group.Status
	// Answer is for a member whose folder is empty.
	Answer(ctx context.Context, q group.Question) (group.Answer, error)
}

// leadership tells who leads.
type leadership interface {
	Leader() (id string, self bool)
	// Changed returns a channel that is closed at the next change of Leader.
	Changed() <-chan struct{}
}

// groupRefusal turns an error of the group into a refusal.
func groupRefusal(err error) *refusal {
	var g *group.Error
	if !errors.As(err, &g) {
		return refuse(lockpb.Reason_INTERNAL, err.Error())
	}
	switch g.Kind {
	case group.NotLeader:
		return refuse(lockpb.Reason_NO_LEADER, "this node does not lead the group")
	case group.Overloaded:
		return refuse(lockpb.Reason_OVERLOADED, "the queue of commands is full").retryAfter(g.RetryAfter)
	case group.Stopping:
		return refuse(lockpb.Reason_STOPPING, "the node is stopping")
	case group.Abandoned:
		return refuse(lockpb.Reason_NO_LEADER, "the call ended before its command was proposed")
	case group.Malformed:
		return invalid("", "the command cannot be written to the log")
	case group.VersionTooLow:
		return refuse(lockpb.Reason_VERSION_TOO_LOW, "not every node of the cluster knows this call yet")
	case group.Unknown:
		return refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the leader was lost, or the call ended, while the command was being committed")
	}
	return refuse(lockpb.Reason_INTERNAL, err.Error())
}
