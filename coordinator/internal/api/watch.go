package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Bounds of one message of a watch, well below maxResponse.
const (
	watchChanges = 500
	watchBytes   = 512 << 10
)

// lookAgain is how long a watch waits for its replica to come as far as the leaders were.
const lookAgain = 20 * time.Millisecond

// Watch implements lockpb.LocksServer. Any node serves it from what its own replica applies.
func (s *Server) Watch(in *lockpb.WatchRequest, stream lockpb.Locks_WatchServer) error {
	return s.watchTo(stream.Context(), in, stream.Send)
}

func (s *Server) watchTo(ctx context.Context, in *lockpb.WatchRequest, send func(*lockpb.WatchResponse) error) error {
	_, refused := bounded(ctx, s, opWatch, func(ctx context.Context) (struct{}, *refusal) {
		return struct{}{}, s.watch(ctx, in, send)
	})
	if refused != nil {
		return refused
	}
	return nil
}

func (s *Server) watch(ctx context.Context, in *lockpb.WatchRequest, send func(*lockpb.WatchResponse) error) *refusal {
	if refused := checkPrefix(in.GetPrefix()); refused != nil {
		return refused
	}
	view := &view{server: s, ctx: ctx, prefix: in.GetPrefix()} // like a list: what the caller may not read is not told
	if refused := view.look(); refused != nil {
		return refused
	}
	if s.config.Journal == nil {
		return view.relay(in, send)
	}
	if err := s.Ready(); err != nil { // it would be blind; the client goes to another node
		return refuse(lockpb.Reason_NO_LEADER, err.Error())
	}
	from, anew, refused := s.watchFrom(ctx, in.GetRevision())
	if refused != nil {
		return refused
	}
	w, err := s.config.Journal.feed.Watch(in.GetPrefix(), view.shows, from)
	if err != nil { // feed.ErrTooMany
		return refuse(lockpb.Reason_OVERLOADED, "this node serves as many watches as it may").retryAfter(time.Second)
	}
	defer w.Close()
	if anew {
		w.Reset()
	}
	v := &watching{server: s, watcher: w, view: view, send: send, sure: time.Now()}
	return v.run(ctx, anew)
}

// checkPrefix reports whether a prefix is the beginning of a name: with one more segment it has to be a name.
func checkPrefix(prefix string) *refusal {
	if prefix == "" {
		return nil
	}
	if _, err := lease.ParseResource(strings.TrimSuffix(prefix, "/")); err != nil {
		return invalid("prefix", "prefix"+strings.TrimPrefix(err.Error(), "resource"))
	}
	return nil
}

// watchFrom is where a watch begins: one position for each group. anew says that the revision is of an earlier life of
// the cluster, so that nothing can be told of what came between.
func (s *Server) watchFrom(ctx context.Context, text string) (from []feed.Position, anew bool, refused *refusal) {
	if text == "" {
		return s.frontiers(ctx)
	}
	revision, err := feed.ParseRevision(text)
	if err != nil {
		return nil, false, invalid("revision", "revision: "+err.Error())
	}
	if revision.Cluster != feed.ClusterMark(s.clusterName()) || len(revision.Groups) != len(s.shards) {
		return nil, false, invalid("revision", "revision is of another cluster")
	}
	ahead := false
	for i, sh := range s.shards {
		info, place := sh.info(), revision.Groups[i]
		switch {
		case place.Incarnation > info.Incarnation:
			return nil, false, refuse(lockpb.Reason_NO_LEADER, "this node's state is older than the revision, of an earlier incarnation")
		case place.Incarnation < info.Incarnation:
			anew = true
		case place.Index > info.Index:
			ahead = true
		}
		from = append(from, place.Position)
	}
	if !ahead || anew {
		return from, anew, nil
	}
	// A replica that lags will get there; a log that ends before the revision never gave it.
	known, _, refused := s.frontiers(ctx)
	if refused != nil {
		return nil, false, refused
	}
	for i := range from {
		if from[i].Index > known[i].Index {
			return nil, false, invalid("revision", fmt.Sprintf("revision is ahead of this cluster: group %d is at %d, not at %d",
				i, known[i].Index, from[i].Index))
		}
	}
	return from, false, nil
}

// frontiers is how far the log of each group is, of all that was acknowledged before the call.
func (s *Server) frontiers(ctx context.Context) ([]feed.Position, bool, *refusal) {
	ctx = metadata.NewIncomingContext(s.asSelf(ctx), nil) // it is this node that asks, also where a watch was sent on to it
	known, refused := everywhere(s, func(sh *shard) (feed.Position, *refusal) {
		index, refused := sh.frontier(ctx)
		return feed.After(index), refused
	})
	return known, false, refused
}

// revision is the text for a place in the log of each group.
func (s *Server) revision(at []feed.Position) string {
	r := feed.Revision{Cluster: feed.ClusterMark(s.clusterName())}
	for i, sh := range s.shards {
		r.Groups = append(r.Groups, feed.Place{Position: at[i], Incarnation: sh.info().Incarnation})
	}
	return r.String()
}

// view is what the caller of a watch may see of it.
type view struct {
	server  *Server
	ctx     context.Context // of the caller
	prefix  string
	changed <-chan struct{} // closed when other rules count
	show    func(lease.Resource) bool
}

// look takes the rules that count now. Who may see nothing any more is refused.
func (v *view) look() *refusal {
	if v.show != nil {
		select {
		case <-v.changed:
		default:
			return nil
		}
	}
	v.changed = v.server.config.Security.Rules.Changed()
	var refused *refusal
	v.show, refused = v.server.shown(v.ctx, v.prefix)
	return refused
}

// relay is the watch of a gateway, whose own rules may change too. Messages come all the time.
func (v *view) relay(in *lockpb.WatchRequest, send func(*lockpb.WatchResponse) error) *refusal {
	var barred *refusal
	ended := v.server.relayWatch(v.ctx, in, func(m *lockpb.WatchResponse) error {
		if barred = v.look(); barred != nil {
			return barred
		}
		return send(m)
	})
	if barred != nil {
		return barred
	}
	return ended
}

func (v *view) shows(r lease.Resource) bool { return v.show(r) }

// watching is one watch that is being served.
type watching struct {
	server  *Server
	watcher *feed.Watcher
	view    *view
	send    func(*lockpb.WatchResponse) error

	told  time.Time // of the last message
	sure  time.Time // all that was acknowledged before it has been told
	beat  uint64    // the last one that was looked at
	goal  []feed.Position
	asked time.Time // when the question was asked whose answer is the goal
}

// run serves until ctx is done, the client is gone, or the node cannot see what happens.
func (v *watching) run(ctx context.Context, resync bool) *refusal {
	for first := true; ; first = false {
		news, beats := v.watcher.Changed(), v.server.sight.news.next()
		if refused := v.view.look(); refused != nil {
			return refused
		}
		batch := v.watcher.Read(watchChanges, watchBytes)
		if first || batch.Missed || len(batch.Changes) > 0 {
			if !v.tell(batch.Changes, batch.Missed || resync && first) {
				return nil
			}
		}
		if !batch.More {
			if refused := v.alive(); refused != nil {
				return refused
			}
			var soon <-chan time.Time
			if v.goal != nil {
				soon = time.After(lookAgain) // an entry without changes wakes nobody
			}
			select {
			case <-news:
			case <-beats:
			case <-soon:
			case <-v.view.changed:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return refuse(lockpb.Reason_STOPPING, "the watch has ended")
		}
	}
}

// tell sends a message, and reports whether the client is still there.
func (v *watching) tell(changes []feed.Change, resync bool) bool {
	message := &lockpb.WatchResponse{Revision: v.server.revision(v.watcher.At()), Resync: resync}
	for i := range changes {
		message.Changes = append(message.Changes, changeOf(&changes[i]))
	}
	if resync {
		v.server.config.Metrics.resyncs.Inc()
	}
	v.told = time.Now()
	return v.send(message) == nil
}

// alive tells an idle client that nothing has happened, once that is certain, and ends the watch if it has not been
// certain for too long: a node that is cut off must not look like one where nothing happens.
func (v *watching) alive() *refusal {
	p := &v.server.sight
	if beat, at, asked := p.last(); v.goal == nil && beat != v.beat {
		v.beat, v.goal, v.asked = beat, at, asked
	}
	if v.goal != nil && v.watcher.Reached(v.goal) {
		v.goal = nil
		if v.asked.After(v.sure) {
			v.sure = v.asked
		}
		if v.told.Before(v.asked) && !v.tell(nil, false) {
			return refuse(lockpb.Reason_STOPPING, "the watch has ended")
		}
	}
	if time.Since(v.sure) > p.blindAfter() {
		return refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf(
			"this node has not been able to tell for %v whether it sees all changes", time.Since(v.sure).Round(time.Second)))
	}
	return nil
}

func changeOf(c *feed.Change) *lockpb.Change {
	out := &lockpb.Change{
		Kind: kindOf(c.Kind), Resource: string(c.Holder.Resource), FencingToken: uint64(c.Token),
		Group: uint32(c.Group), Index: c.Index, AsOf: int64(c.Now),
	}
	if c.Holder.Client != "" {
		out.Holder = holder(c.Holder, c.Now)
	}
	return out
}

func kindOf(k feed.Kind) lockpb.Change_Kind {
	switch k {
	case feed.Granted:
		return lockpb.Change_GRANTED
	case feed.Released:
		return lockpb.Change_RELEASED
	case feed.Expired:
		return lockpb.Change_EXPIRED
	case feed.Broken:
		return lockpb.Change_BROKEN
	}
	return lockpb.Change_KIND_UNSPECIFIED
}

// revisionOf is the revision of one group's state. Those of all groups together are one of the cluster: see
// mergedRevision.
func revisionOf(info lock.Info) string {
	return feed.Revision{
		Cluster: feed.ClusterMark(info.Cluster),
		Groups:  []feed.Place{{Position: feed.After(info.Index), Incarnation: info.Incarnation}},
	}.String()
}

// mergedRevision is the revision of a list that was put together from pages of all groups, in their order. It is empty
// if a page has none, as from a node of an older release.
func mergedRevision(pages []*lockpb.ListResponse) string {
	var merged feed.Revision
	for _, page := range pages {
		part, err := feed.ParseRevision(page.GetRevision())
		if err != nil {
			return ""
		}
		merged.Cluster = part.Cluster
		merged.Groups = append(merged.Groups, part.Groups...)
	}
	return merged.String()
}
