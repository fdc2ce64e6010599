package lock

import (
	"maps"
	"slices"
)

// calendar orders slots by (instant, sequence number), as timers does, for very many of which most are moved before their
// time: to add, move or remove one costs the same however many there are. It files them in lists by periods, eight bytes
// for each slot; the instants stand in the records alone. Only what is in a period that has begun is put in order, and
// that bit by bit as it is asked for.
//
// What a slot is filed by must not change while it is in: remove it before, add it after.
type calendar struct {
	key   func(slot) timer // of a slot; of one that is not in, any that was never its own
	count int
	begun LeaseTime            // the last period that has begun
	later map[LeaseTime][]slot // by period
	pos   *[]int32             // by slot: its index in its list; two calendars that never have the same slots may share it
	near  run                  // what was filed in periods that have begun; also what was removed from it meanwhile
	late  timers               // what was added to them since
}

// period is how much lease time a list is of: less than leases are granted for, so that little comes late.
const period = LeaseTime(1) << 28

func newCalendar(key func(slot) timer, pos *[]int32) calendar {
	return calendar{key: key, later: make(map[LeaseTime][]slot), pos: pos}
}

func (c *calendar) len() int { return c.count }

// add files a slot that is not in.
func (c *calendar) add(s slot) {
	c.count++
	t := c.key(s)
	p := t.at / period
	if p <= c.begun {
		c.late.set(s, t.at, t.seq)
		return
	}
	for int(s) >= len(*c.pos) {
		*c.pos = append(*c.pos, 0)
	}
	list := c.later[p]
	(*c.pos)[s] = int32(len(list))
	c.later[p] = append(list, s)
}

// remove drops a slot that is in, or that take has returned since.
func (c *calendar) remove(s slot) {
	c.count--
	p := c.key(s).at / period
	if p <= c.begun {
		c.late.remove(s) // what is near is left there, and passed by when its turn comes
		return
	}
	list := c.later[p]
	last := len(list) - 1
	if last == 0 {
		delete(c.later, p)
		return
	}
	at := (*c.pos)[s]
	list[at] = list[last]
	(*c.pos)[list[at]] = at
	c.later[p] = list[:last]
}

// due reports whether there is a slot whose instant is not after now.
func (c *calendar) due(now LeaseTime) bool {
	first, any := c.first(now)
	return any && first.at <= now
}

// take returns the first slots whose instants are not after now, in order, as many as there is room for. They have to
// be removed.
func (c *calendar) take(now LeaseTime, room []slot) []slot {
	for i := range room {
		first, any := c.first(now)
		if !any || first.at > now {
			return room[:i]
		}
		if near, any := c.near.first(); any && near == first {
			c.near.drop()
		}
		c.late.remove(first.slot) // there too, or instead
		room[i] = first.slot
	}
	return room
}

// first is what comes first of what is not after the period of now.
func (c *calendar) first(now LeaseTime) (timer, bool) {
	c.begin(now / period)
	near, any := c.near.first()
	for any && c.key(near.slot) != near {
		c.near.drop()
		near, any = c.near.first()
	}
	if c.late.len() > 0 && (!any || c.late.heap[0].before(near)) {
		return c.late.heap[0], true
	}
	return near, any
}

// begin lets the periods up to one begin.
func (c *calendar) begin(last LeaseTime) {
	if last <= c.begun {
		return
	}
	c.near.tidy()
	if last-c.begun < LeaseTime(len(c.later)) {
		for p := c.begun + 1; p <= last; p++ {
			c.gather(p)
		}
	} else {
		for _, p := range slices.Sorted(maps.Keys(c.later)) {
			if p <= last {
				c.gather(p)
			}
		}
	}
	c.begun = last
}

// gather moves what is filed in a period to what is near, all of which is before.
func (c *calendar) gather(p LeaseTime) {
	for _, s := range c.later[p] {
		c.near.list = append(c.near.list, c.key(s))
	}
	delete(c.later, p)
}
