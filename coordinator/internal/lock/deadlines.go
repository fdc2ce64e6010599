package lock

// deadlines orders leases by (deadline, sequence number), as timers does, with eight bytes for each: the instants stand
// in the records alone. It is a heap of four branches, since what costs is how deep it is: each level is a place
// elsewhere in memory. A record's deadline must not change without set.
type deadlines struct {
	leases *slab[leaseRecord]
	heap   []slot
	pos    []int32 // by slot: its index in heap plus 1, or 0
}

const branches = 4

func (d *deadlines) len() int { return len(d.heap) }

// due returns the first lease if its deadline is not after now.
func (d *deadlines) due(now LeaseTime) (slot, bool) {
	if len(d.heap) == 0 || d.leases.peek(d.heap[0]).deadline > now {
		return 0, false
	}
	return d.heap[0], true
}

// set adds the lease, or moves it after its deadline changed.
func (d *deadlines) set(l slot) {
	for int(l) >= len(d.pos) {
		d.pos = append(d.pos, 0)
	}
	if d.pos[l] == 0 {
		d.heap = append(d.heap, l)
		d.pos[l] = int32(len(d.heap))
	}
	d.settle(int(d.pos[l])-1, l)
}

// remove drops the lease, which must be there.
func (d *deadlines) remove(l slot) {
	hole, last := int(d.pos[l])-1, len(d.heap)-1
	d.pos[l] = 0
	moved := d.heap[last]
	d.heap = d.heap[:last]
	if hole < last {
		d.settle(hole, moved)
	}
}

// settle finds the place of a lease, from one on that is free for it.
func (d *deadlines) settle(at int, l slot) {
	rec := d.leases.peek(l)
	at = d.rise(at, rec)
	at = d.sink(at, rec)
	d.place(at, l)
}

// rise moves the leases above a place down, if they are later than the record.
func (d *deadlines) rise(at int, rec *leaseRecord) int {
	for at > 0 {
		parent := (at - 1) / branches
		if !rec.before(d.leases.peek(d.heap[parent])) {
			break
		}
		d.place(at, d.heap[parent])
		at = parent
	}
	return at
}

// sink moves the leases below a place up, if they are earlier than the record.
func (d *deadlines) sink(at int, rec *leaseRecord) int {
	for {
		least, first := at, rec
		for child := branches*at + 1; child <= branches*at+branches && child < len(d.heap); child++ {
			if c := d.leases.peek(d.heap[child]); c.before(first) {
				least, first = child, c
			}
		}
		if least == at {
			return at
		}
		d.place(at, d.heap[least])
		at = least
	}
}

func (d *deadlines) place(at int, l slot) {
	d.heap[at] = l
	d.pos[l] = int32(at + 1)
}

func (l *leaseRecord) before(other *leaseRecord) bool {
	if l.deadline != other.deadline {
		return l.deadline < other.deadline
	}
	return l.seq < other.seq
}
