package group

import "sync/atomic"

// reason is why a node does not take part, in words; empty if there is none.
type reason struct{ text atomic.Pointer[string] }

func (r *reason) say(text string) { r.text.Store(&text) }

func (r *reason) String() string {
	if text := r.text.Load(); text != nil {
		return *text
	}
	return ""
}

// reasons are all that can keep a node from taking part, or from being of use, the gravest first.
type reasons struct {
	disk    reason // it hangs, is full or broken
	life    reason // its state is of a life of the cluster that was given up
	outside reason // the node is not a member
	origin  reason // it has lost its memory, or has none yet
	stuck   reason // it applies nothing although the others do
}

// first is the gravest.
func (r *reasons) first() string {
	for _, one := range []*reason{&r.disk, &r.life, &r.outside, &r.origin, &r.stuck} {
		if text := one.String(); text != "" {
			return text
		}
	}
	return ""
}
