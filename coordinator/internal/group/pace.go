package group

import (
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// paced writes a snapshot out, and rests so that it takes one part in so many of a CPU. What is written is frozen, and can
// wait; those who renew their leases meanwhile cannot. The time that a write took counts too, so on a busy machine, or on
// a busy disk, it rests the longer.
type paced struct {
	to   io.Writer
	rush *atomic.Bool // the node is about to stop: no more rests
	last time.Time    // when the last rest ended

	written int64
}

const (
	pacedPart   = 8                     // of a CPU
	longestRest = 50 * time.Millisecond // of one rest; writes come every 64 KiB
)

func newPaced(to io.Writer, rush *atomic.Bool) *paced {
	return &paced{to: to, rush: rush, last: time.Now()}
}

func (p *paced) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.written += int64(n)
	if !p.rush.Load() {
		time.Sleep(min((pacedPart-1)*time.Since(p.last), longestRest))
	}
	p.last = time.Now()
	return n, err
}

// spread is how much further the log may grow on this member than on the first, as a factor: up to a half more. All members
// apply the same entries, and are not to write their snapshots all at once.
func (c Config) spread() float64 {
	place := slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == c.Node })
	return 1 + float64(max(place, 0))/float64(2*max(len(c.Members), 1))
}
