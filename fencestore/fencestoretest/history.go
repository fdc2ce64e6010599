package fencestoretest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/fencestore"
)

// history is what the callers of a fixture's stores were told, for the judge: invariants 3 (a floor never goes down),
// 4 (no write below it takes effect) and 12 (only this cluster's tokens raise it) hold for every test of the suite.
type history struct {
	mu       sync.Mutex
	clock    int // counts beginnings and ends of calls
	logs     map[string]*resourceLog
	sessions map[fencestore.Session]map[string]fencestore.Token // what each is bound under
}

// resourceLog is the part of one resource.
type resourceLog struct {
	issued map[fencestore.Token]bool // claimed for the suite's cluster
	known  fencestore.Token          // the floor is at least this: a call that has ended says so
	seen   []observation
}

// observation is a fact that held at some moment between begin and end.
type observation struct {
	begin, end int
	token      fencestore.Token
	event      invariant.Event
}

func newHistory() *history {
	return &history{
		logs:     make(map[string]*resourceLog),
		sessions: make(map[fencestore.Session]map[string]fencestore.Token),
	}
}

// log is that of one resource. The caller holds mu.
func (h *history) log(resource string) *resourceLog {
	l := h.logs[resource]
	if l == nil {
		l = &resourceLog{issued: make(map[fencestore.Token]bool)}
		h.logs[resource] = l
	}
	return l
}

// call is one in progress.
type call struct {
	h        *history
	resource string
	begin    int
	known    fencestore.Token // at the beginning
}

func (h *history) begin(resource string) call {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return call{h, resource, h.clock, h.log(resource).known}
}

// claims is the beginning of a call that makes a claim.
func (h *history) claims(c fencestore.Claim) call {
	if c.Cluster == Cluster && c.Token >= 1 && uint64(c.Token) <= uint64(lease.MaxToken) {
		h.mu.Lock()
		h.log(c.Resource).issued[c.Token] = true
		h.mu.Unlock()
	}
	return h.begin(c.Resource)
}

func (c call) raised(token fencestore.Token) {
	c.end(token, invariant.FloorRaised{Resource: lease.Resource(c.resource), Token: lease.Token(token)})
}

// read drops what tells nothing new: a floor that was known when the question was asked.
func (c call) read(token fencestore.Token) {
	if token != c.known {
		c.end(token, invariant.FloorRead{Resource: lease.Resource(c.resource), Token: lease.Token(token)})
	}
}

func (c call) wrote(token fencestore.Token) {
	c.end(token, invariant.WriteAccepted{Resource: lease.Resource(c.resource), Token: lease.Token(token)})
}

func (c call) end(token fencestore.Token, e invariant.Event) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.clock++
	l := c.h.log(c.resource)
	if _, write := e.(invariant.WriteAccepted); !write {
		l.known = max(l.known, token)
	}
	l.seen = append(l.seen, observation{c.begin, c.h.clock, token, e})
}

// judge has the checker judge everything so far. Each resource counts as a group of its own, since nothing here counts
// the tokens of several.
func (h *history) judge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, resource := range slices.Sorted(maps.Keys(h.logs)) {
		errs = append(errs, h.logs[resource].judge(lease.Resource(resource)))
	}
	return errors.Join(errs...)
}

func (l *resourceLog) judge(resource lease.Resource) error {
	checker := invariant.New(invariant.Options{TokensSeen: true})
	for _, token := range slices.Sorted(maps.Keys(l.issued)) {
		if err := checker.Observe(invariant.TokenIssued{Resource: resource, Token: lease.Token(token)}); err != nil {
			return err
		}
	}
	for _, o := range inOrder(l.seen) {
		if err := checker.Observe(o.event); err != nil {
			return err
		}
	}
	return nil
}

// inOrder puts observations in an order in which they can have happened: none before one that had ended when it began,
// and of those that overlap the lowest token first. If there is any order in which floors only grow, this is one.
func inOrder(seen []observation) []observation {
	left := slices.Clone(seen)
	out := make([]observation, 0, len(left))
	for len(left) > 0 {
		firstEnd := left[0].end
		for _, o := range left {
			firstEnd = min(firstEnd, o.end)
		}
		next := -1
		for i, o := range left {
			if o.begin < firstEnd && (next < 0 || o.token < left[next].token) {
				next = i
			}
		}
		out = append(out, left[next])
		left = slices.Delete(left, next, next+1)
	}
	return out
}

// watched is a store whose callers' answers go into a history.
type watched struct {
	fencestore.Store
	h *history
}

func (w watched) Raise(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	c := w.h.claims(claim)
	accepted, err := w.Store.Raise(ctx, claim)
	c.decided(claim.Token, err)
	return accepted, err
}

func (w watched) Bind(ctx context.Context, claim fencestore.Claim, session fencestore.Session) (fencestore.Accepted, error) {
	c := w.h.claims(claim)
	accepted, err := w.Store.Bind(ctx, claim, session)
	c.decided(claim.Token, err)
	if err == nil {
		w.h.bound(claim, session)
	}
	return accepted, err
}

func (w watched) Unbind(ctx context.Context, claim fencestore.Claim, session fencestore.Session, idle bool) (bool, error) {
	gone, err := w.Store.Unbind(ctx, claim, session, idle)
	if err == nil && gone {
		w.h.mu.Lock()
		delete(w.h.sessions[session], claim.Resource)
		w.h.mu.Unlock()
	}
	return gone, err
}

func (w watched) Floor(ctx context.Context, cluster, resource string) (fencestore.Floor, error) {
	c := w.h.begin(resource)
	floor, err := w.Store.Floor(ctx, cluster, resource)
	if err == nil {
		c.read(floor.Token)
	}
	return floor, err
}

// decided notes what the answer to a claim says of the floor. After another error nothing is known.
func (c call) decided(token fencestore.Token, err error) {
	var refusal *fencestore.Refusal
	switch {
	case err == nil:
		c.raised(token)
	case errors.As(err, &refusal) && refusal.Reason == fencestore.StaleToken:
		c.read(refusal.Floor.Token)
	}
}

func (h *history) bound(claim fencestore.Claim, session fencestore.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[session] == nil {
		h.sessions[session] = make(map[string]fencestore.Token)
	}
	h.sessions[session][claim.Resource] = max(h.sessions[session][claim.Resource], claim.Token)
}

// probe has every bound session that still lives write, in effect: what lives can. It reads every floor too, through a
// store that is watched.
func (h *history) probe(ctx context.Context, store watched, alive func(fencestore.Session) bool) {
	h.mu.Lock()
	resources := slices.Sorted(maps.Keys(h.logs))
	sessions := make(map[fencestore.Session]map[string]fencestore.Token)
	for s, bindings := range h.sessions {
		sessions[s] = maps.Clone(bindings)
	}
	h.mu.Unlock()
	for s, bindings := range sessions {
		if !alive(s) {
			continue
		}
		for resource, token := range bindings {
			h.begin(resource).wrote(token)
		}
	}
	for _, resource := range resources {
		_, _ = store.Floor(ctx, Cluster, resource) // a test may have closed the store
	}
}
