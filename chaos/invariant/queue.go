package invariant

import "fmt"

// order is invariant 8: waiters are granted in the order of the log. Those whose caller is away or whose time is up
// are passed over but keep their place, and a newcomer passes nobody who is there. Right after an election only the
// head may be granted.
func order(h *history, e Event) string {
	switch e := e.(type) {
	case Granted:
		return mayBeGranted(h, e)
	case Queued:
		if h.waiters[e.Request] != nil {
			return "the request waits twice"
		}
	case Unqueued:
		if h.waiters[e.Request] == nil {
			return "the request does not wait"
		}
	}
	return ""
}

func mayBeGranted(h *history, g Granted) string {
	own := h.waiters[g.Request]
	if own != nil {
		switch {
		case own.Resource != g.Resource:
			return fmt.Sprintf("the request waits for %q", own.Resource)
		case !own.Attached:
			return "granted while its caller was away"
		case own.Deadline <= g.At:
			return fmt.Sprintf("granted at %v though its wait was over at %v", g.At, own.Deadline)
		}
	}
	for _, w := range h.queues[g.Resource] {
		if w == own {
			break
		}
		if w.Deadline > g.At && (w.Attached || g.At < h.headStart) {
			return fmt.Sprintf("passed %v, which was before it", w.Request)
		}
	}
	return ""
}
