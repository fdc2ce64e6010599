package invariant

import (
	"fmt"
	"maps"
)

// requests is invariant 7: within the window a request has at most one effect, outside it none, and a retry reports
// the effect as it stands.
type requests struct {
	options Options
	effects map[Request]Instant // when each last took effect
}

func newRequests(o Options) *requests {
	return &requests{options: o, effects: make(map[Request]Instant)}
}

func (r *requests) clone() *requests {
	return &requests{options: r.options, effects: maps.Clone(r.effects)}
}

func (r *requests) judge(h *history, e Event) string {
	switch e := e.(type) {
	case Granted:
		if h.waiters[e.Request] != nil {
			return "" // the effect was its place in the queue
		}
		return r.effect(h, e.Request, e.At, e.AsOf)
	case Queued:
		return r.effect(h, e.Request, e.At, e.AsOf)
	case Forestalled:
		return r.forestall(h, e)
	case Reported:
		return report(h, e)
	}
	return ""
}

func (r *requests) effect(h *history, q Request, at, asOf Instant) string {
	if h.waiters[q] != nil || h.held[q] != nil {
		return "a second effect while the first one lasts"
	}
	before, again := r.effects[q]
	r.effects[q] = at
	window := r.options.Window
	switch {
	case window == 0 && again:
		return fmt.Sprintf("a second effect; the first was at %v", before)
	case window == 0:
		return ""
	case at > asOf.Add(window):
		return fmt.Sprintf("executed %v after it was made, the window is %v", at-asOf, window)
	case again && at <= before.Add(window):
		return fmt.Sprintf("a second effect within the window; the first was at %v", before)
	case again && asOf <= before:
		return fmt.Sprintf("a copy took a second effect; the first was at %v", before)
	}
	return ""
}

// forestall is no effect, and may follow one that its client let be forgotten; but no effect may follow it.
func (r *requests) forestall(h *history, e Forestalled) string {
	if h.waiters[e.Request] != nil || h.held[e.Request] != nil {
		return "a request that lives was taken for one never seen"
	}
	r.effects[e.Request] = e.At
	return ""
}

func report(h *history, e Reported) string {
	waits, l := h.waiters[e.Request] != nil, h.held[e.Request]
	switch e.State {
	case Held:
		if l == nil || l.Lease != e.Lease || l.Token != e.Token {
			return "reported a lease that the request does not hold"
		}
	case Waiting:
		if !waits {
			return "reported as waiting and does not wait"
		}
	case Over:
		if waits || l != nil {
			return "reported as over and is not"
		}
	}
	return ""
}
