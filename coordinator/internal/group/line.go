package group

import "container/heap"

// line is where the commands of one class stand. A proposal stands in at most one.
type line interface {
	add(*proposal)
	first() *proposal // nil if nobody stands there
	drop(*proposal)
}

// fifo serves in the order of arrival. It is a list through the proposals themselves.
type fifo struct{ head, tail *proposal }

func (f *fifo) add(p *proposal) {
	p.ahead, p.behind = f.tail, nil
	if f.tail != nil {
		f.tail.behind = p
	} else {
		f.head = p
	}
	f.tail = p
}

func (f *fifo) first() *proposal { return f.head }

func (f *fifo) drop(p *proposal) {
	if p.ahead != nil {
		p.ahead.behind = p.behind
	} else {
		f.head = p.behind
	}
	if p.behind != nil {
		p.behind.ahead = p.ahead
	} else {
		f.tail = p.ahead
	}
	p.ahead, p.behind = nil, nil
}

// byDeadline serves the lease that is nearest its end, and of two that are equally near the first that came.
type byDeadline struct {
	proposals deadlines
	arrived   uint64
}

func (b *byDeadline) add(p *proposal) {
	b.arrived++
	p.arrived = b.arrived
	heap.Push(&b.proposals, p)
}

func (b *byDeadline) first() *proposal {
	if len(b.proposals) == 0 {
		return nil
	}
	return b.proposals[0]
}

func (b *byDeadline) drop(p *proposal) { heap.Remove(&b.proposals, p.position) }

// deadlines implements heap.Interface.
type deadlines []*proposal

func (d deadlines) Len() int { return len(d) }

func (d deadlines) Less(i, j int) bool {
	if d[i].deadline != d[j].deadline {
		return d[i].deadline < d[j].deadline
	}
	return d[i].arrived < d[j].arrived
}

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].position, d[j].position = i, j
}

func (d *deadlines) Push(x any) {
	p := x.(*proposal)
	p.position = len(*d)
	*d = append(*d, p)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	p := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return p
}
