package track

// entry is one outstanding reply, small because a client may pipeline tens of thousands.
type entry struct {
	kind  Kind
	flags flags
}

type flags uint8

const (
	pure flags = 1 << iota
	mayCommit
	refused
	hidden
)

func (e entry) is(f flags) bool { return e.flags&f != 0 }

// queue is a ring that grows up to MaxOutstanding.
type queue struct {
	ring  []entry // its length is a power of two
	first int
	count int
}

func (q *queue) len() int { return q.count }

func (q *queue) at(i int) entry { return q.ring[(q.first+i)&(len(q.ring)-1)] }

func (q *queue) push(s Sent) {
	if q.count == len(q.ring) {
		q.grow()
	}
	q.ring[(q.first+q.count)&(len(q.ring)-1)] = entry{s.Kind, flagsOf(s)}
	q.count++
}

func flagsOf(s Sent) (f flags) {
	if s.Pure {
		f |= pure
	}
	if s.MayCommit {
		f |= mayCommit
	}
	if s.Instead != nil {
		f |= refused
	}
	if s.Hidden {
		f |= hidden
	}
	return f
}

func (q *queue) grow() {
	ring := make([]entry, max(8, 2*len(q.ring)))
	for i := range q.count {
		ring[i] = q.at(i)
	}
	q.ring, q.first = ring, 0
}

func (q *queue) pop() entry {
	e := q.at(0)
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.count--
	if q.count == 0 && len(q.ring) > 1024 {
		*q = queue{} // a burst is over
	}
	return e
}

// removeSecond keeps the head and removes what stands behind it.
func (q *queue) removeSecond() {
	head := q.pop()
	q.ring[q.first] = head
}

// mayCopy reports whether something outstanding could be a COPY whose end is about to be sent.
func (q *queue) mayCopy() bool {
	for i := q.count - 1; i >= 0; i-- {
		switch q.at(i).kind {
		case CopyEnd:
			return false // one is enough
		case Query, Execute:
			return true
		case Call, Parse, Bind, DescribeStatement, DescribePortal, Close, Sync:
		}
	}
	return false
}
