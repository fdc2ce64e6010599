package lock

// deadlines orders requests by (due, sequence number), as timers does, with eight bytes for each: the instants stand in
// the records alone. It is a heap of four branches, since what costs is how deep it is: each level is a place elsewhere in
// memory. A record that is in it must not change when it is due without set.
type deadlines struct {
	requests *slab[requestRecord]
	texts    *texts
	heap     []slot
	places   *[]int32 // by slot: its index in the heap plus 1, or 0; two heaps that never have the same slots may share it
}

const branches = 4

func (d *deadlines) len() int { return len(d.heap) }

// due returns the first request if it is due now or before.
func (d *deadlines) due(now LeaseTime) (slot, bool) {
	if len(d.heap) == 0 || d.requests.peek(d.heap[0]).due > now {
		return 0, false
	}
	return d.heap[0], true
}

// set adds the request, or moves it after it changed when it is due.
func (d *deadlines) set(q slot) {
	for int(q) >= len(*d.places) {
		*d.places = append(*d.places, 0)
	}
	if (*d.places)[q] == 0 {
		d.heap = append(d.heap, q)
		(*d.places)[q] = int32(len(d.heap))
	}
	d.settle(int((*d.places)[q])-1, q)
}

// remove drops the request if it is there.
func (d *deadlines) remove(q slot) {
	if int(q) >= len(*d.places) || (*d.places)[q] == 0 {
		return
	}
	hole, last := int((*d.places)[q])-1, len(d.heap)-1
	(*d.places)[q] = 0
	moved := d.heap[last]
	d.heap = d.heap[:last]
	if hole < last {
		d.settle(hole, moved)
	}
}

// settle finds the place of a request, from one on that is free for it.
func (d *deadlines) settle(at int, q slot) {
	rec := d.requests.peek(q)
	at = d.rise(at, rec)
	at = d.sink(at, rec)
	d.place(at, q)
}

// rise moves those above a place down, if they are later than the record.
func (d *deadlines) rise(at int, rec *requestRecord) int {
	for at > 0 {
		parent := (at - 1) / branches
		if !d.before(rec, d.requests.peek(d.heap[parent])) {
			break
		}
		d.place(at, d.heap[parent])
		at = parent
	}
	return at
}

// sink moves those below a place up, if they are earlier than the record.
func (d *deadlines) sink(at int, rec *requestRecord) int {
	for {
		least, first := at, rec
		for child := branches*at + 1; child <= branches*at+branches && child < len(d.heap); child++ {
			if c := d.requests.peek(d.heap[child]); d.before(c, first) {
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

func (d *deadlines) place(at int, q slot) {
	d.heap[at] = q
	(*d.places)[q] = int32(at + 1)
}

func (d *deadlines) before(a, b *requestRecord) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return d.order(a) < d.order(b)
}

// order is the sequence number of a lease, or of a request that is over.
func (d *deadlines) order(r *requestRecord) uint64 {
	if r.stage == StageHeld {
		return leaseSeq(r, d.texts)
	}
	return r.seq
}
