package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// forwardedKey marks, in the metadata, a call that a node sent on. It is not sent on again: two nodes that take
// each other for the leader would pass it back and forth.
const forwardedKey = "lychgate-forwarded"

func forwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, forwardedKey)) > 0
}

// call is one API call on its way to the leader: how this node serves it when it leads, and how another is asked.
type call[R any] struct {
	here  func(context.Context) (R, *refusal)
	there func(context.Context, lockpb.LocksClient) (R, error)
	// cluster is there for a call of the Cluster service; one of the two is set.
	cluster func(context.Context, lockpb.ClusterClient) (R, error)
	// once is for a call that must not be made again while its outcome is unknown.
	once bool
	// patience is how long a leader is looked for; it begins again whenever one was reached.
	patience time.Duration
	// waits is for a call that may stand in a queue: once it was sent, a leader is looked for until ctx ends.
	waits bool
}

// route makes the call wherever the leader is, and again when the leader changes: always when it was certainly not
// applied, and when that is unknown unless the call says once. It ends when ctx does, or when no leader is found.
func route[R any](ctx context.Context, sh *shard, c call[R]) (R, *refusal) {
	var unknown bool // an earlier attempt may have been applied
	found := time.Now()
	pause := firstPause
	for {
		changed := sh.group.Changed()
		answer, last := attempt(ctx, sh, c)
		if last == nil || !passing(last) {
			return answer, afterUnknown(last, unknown)
		}
		if !last.maybe() && sh.group.Status().Removed {
			last = sh.removed()
		}
		if last.final && unknown {
			return answer, last.mayBeApplied()
		}
		if last.final || forwarded(ctx) {
			return answer, last
		}
		if last.maybe() {
			unknown, found, pause = true, time.Now(), firstPause
			if c.once {
				return answer, last
			}
		}
		sh.doubt()
		impatient := time.Since(found) > c.patience && !(c.waits && unknown)
		if impatient || !sh.sleep(ctx, changed, pause) {
			return answer, givenUp(last, unknown)
		}
		pause = min(2*pause, longestPause)
	}
}

// A leader change wakes a paused call at once; the pauses are for what gives no sign.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 200 * time.Millisecond
	// eachPause is how much longer a pause is for every other call that pauses. Without a leader all calls of a busy node do;
	// thousands of them that look for it five times a second leave the election no time on a busy machine.
	eachPause  = 200 * time.Microsecond
	crowdPause = 2 * time.Second // but not more
)

// sleep is a pause of a call among others.
func (sh *shard) sleep(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	crowd := sh.pausing.Add(1)
	defer sh.pausing.Add(-1)
	return sleep(ctx, changed, amid(crowd, d))
}

// amid is how long a call pauses among so many, itself included.
func amid(crowd int64, d time.Duration) time.Duration {
	return max(d, min(time.Duration(crowd-1)*eachPause, crowdPause))
}

func sleep(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

func attempt[R any](ctx context.Context, sh *shard, c call[R]) (R, *refusal) {
	leader, self, reign := sh.reigns.now()
	var nothing R
	switch {
	case self:
		return c.here(ctx)
	case forwarded(ctx):
		return nothing, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("node %s does not lead group %d", sh.config.Node, sh.number))
	case leader == "":
		return nothing, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("no leader of group %d is known", sh.number))
	}
	return forward(ctx, sh, c, reign)
}

func forward[R any](ctx context.Context, sh *shard, c call[R], to reign) (R, *refusal) {
	var nothing R
	conn, err := sh.peers.conn(to.leader)
	if err != nil {
		return nothing, refuse(lockpb.Reason_NO_LEADER, err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(to.over, cancel)()
	ctx, sent := withSent(sh.outgoing(ctx))
	answer, err := c.send(ctx, conn)
	switch {
	case err == nil:
		return answer, nil
	case !sent.Load():
		return nothing, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("the leader %s cannot be reached", to.leader))
	}
	return nothing, received(err, to.leader)
}

func (c call[R]) send(ctx context.Context, conn *grpc.ClientConn) (R, error) {
	if c.cluster != nil {
		return c.cluster(ctx, lockpb.NewClusterClient(conn))
	}
	return c.there(ctx, lockpb.NewLocksClient(conn))
}

// received reads the refusal that another node sent. An error without one comes from the way between.
func received(err error, leader string) *refusal {
	st := status.Convert(err)
	for _, detail := range st.Details() {
		if r, ok := detail.(*lockpb.Refusal); ok && r.GetReason() != lockpb.Reason_REASON_UNSPECIFIED {
			if r.GetField() == forwardedKey {
				return outcast(leader)
			}
			return &refusal{message: st.Message(), detail: r}
		}
	}
	return refuse(lockpb.Reason_OUTCOME_UNKNOWN, fmt.Sprintf("the leader %s was lost before it answered", leader))
}

// removed is the answer of a node that is no member any more, so that callers go elsewhere.
func (sh *shard) removed() *refusal {
	out := refuse(lockpb.Reason_STOPPING, fmt.Sprintf("node %s was removed from the cluster", sh.config.Node)).advise(elsewhere)
	out.final = true
	return out
}

// outcast is the answer of a node whose calls the leader does not take: it was removed and has not heard of it, or its
// certificate is of another node.
func outcast(leader string) *refusal {
	out := refuse(lockpb.Reason_STOPPING, fmt.Sprintf("this node was removed from the cluster, or is not of it: the leader %s takes no calls from it", leader)).
		advise(elsewhere)
	out.final = true
	return out
}

const elsewhere = "ask another node"

// passing reports whether the same call may well succeed at the next leader.
func passing(r *refusal) bool {
	switch r.reason() {
	case lockpb.Reason_NO_LEADER, lockpb.Reason_STOPPING, lockpb.Reason_NOT_INITIALISED, lockpb.Reason_OUTCOME_UNKNOWN:
		return true
	default:
		return false
	}
}

// afterUnknown corrects the answer to a repeated call: that a lease has ended may be the doing of the first attempt.
func afterUnknown(last *refusal, unknown bool) *refusal {
	if last != nil && unknown && last.reason() == lockpb.Reason_LEASE_ENDED {
		last.message += " (an earlier attempt of this call may have ended it)"
		return last.mayBeApplied()
	}
	return last
}

func givenUp(last *refusal, unknown bool) *refusal {
	if !unknown {
		return last
	}
	return refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the leader was lost before it answered, and no other answered in time")
}
