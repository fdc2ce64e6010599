package invariant

import "fmt"

// replicas is invariant 10: after the same log index all replicas have the same digest.
type replicas struct{ digests map[uint64]Applied }

func newReplicas() *replicas { return &replicas{digests: make(map[uint64]Applied)} }

func (r *replicas) judge(_ *history, e Event) string {
	a, ok := e.(Applied)
	if !ok {
		return ""
	}
	first, seen := r.digests[a.Index]
	if !seen {
		r.digests[a.Index] = a
		return ""
	}
	if first.Digest != a.Digest {
		return fmt.Sprintf("%s differs from %s at index %d", a.Replica, first.Replica, a.Index)
	}
	return ""
}
