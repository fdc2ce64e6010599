package lock

import (
	"reflect"
	"testing"
)

// A machine takes some hundred kilobytes when it is new, most of them for what only a large one needs. Who makes millions
// of small ones uses the memory of one again and again.

// Reuse makes the machine what New returns. Snapshots of it are void.
func (m *Machine) Reuse() {
	m.initialised, m.cluster, m.version, m.incarnation, m.config = false, "", 0, 0, Config{}
	m.index, m.now, m.counter, m.seq, m.headStart = 0, 0, 0, 0, 0
	m.keys, m.members, m.policies, m.rules = nil, nil, nil, rules{}
	m.held, m.namedWaits, m.watched, m.tornWaits = 0, 0, 0, 0
	m.events, m.usual, m.describes = nil, 0, false
	m.clients.reuse()
	m.requests.reuse()
	m.waiters.reuse()
	m.delays.reuse()
	m.tenants.reuse()
	m.texts.reuse()
	m.rolls.reuse()
	for _, x := range []*index{m.byClient, m.byRequest, m.byLease, m.byResource} {
		x.reuse()
	}
	clear(m.resources)
	clear(m.awaits)
	clear(m.byTenant)
	clear(m.waits)
	clear(m.torn)
	m.expiries.reuse()
	m.oblivions.reuse()
	m.endings.reuse()
	m.departures.reuse()
	m.openings.reuse()
}

// RestoreInto is NewRestorer in the memory of another machine.
func RestoreInto(m *Machine, h Header) (*Restorer, error) {
	m.Reuse()
	return restorerInto(m, h)
}

// Look is a snapshot that is good until the next change, and costs less than one that lasts.
func (m *Machine) Look() *Snapshot { return m.look() }

func (s *slab[T]) reuse() {
	s.free, s.next, s.count = s.free[:0], 0, 0
	for i := range s.owned {
		s.owned[i] = true
	}
}

func (t *texts) reuse() {
	for class := range t.classes {
		c := &t.classes[class]
		shift, size := cellBits(uint8(class)), sizeOf(uint8(class))
		for cell := range c.next {
			if page := c.pages[cell>>shift]; page != nil {
				page[int(cell&(1<<shift-1))*size] = 0
			}
		}
		c.free, c.next = c.free[:0], 0
		for i := range c.owned {
			c.owned[i] = true
		}
	}
}

func (x *index) reuse() {
	if x.count == 0 {
		return
	}
	for i := range x.parts {
		if p := &x.parts[i]; p.used > 0 {
			clear(p.marks)
			p.used = 0
		}
	}
	x.count = 0
}

func (c *calendar) reuse() {
	clear(c.later)
	c.count, c.begun, c.near = 0, 0, run{list: c.near.list[:0], cuts: c.near.cuts[:0]}
	c.late.reuse()
}

func (t *timers) reuse() {
	t.heap = t.heap[:0]
	clear(t.pos)
}

// A used machine that is to be new has nothing left but memory: plain fields are zero, and lists and maps empty.
func TestReuseLeavesNothing(t *testing.T) {
	m := New()
	full := reflect.ValueOf(m).Elem()
	m.index, m.now, m.counter, m.seq, m.held, m.usual, m.describes = 1, 1, 1, 1, 1, 1, true
	m.version, m.incarnation, m.headStart, m.initialised, m.cluster = 1, 1, 1, true, "c"
	m.namedWaits, m.watched, m.tornWaits = 1, 1, 1
	m.Reuse()
	fresh := reflect.ValueOf(New()).Elem()
	for i := range full.NumField() {
		name := full.Type().Field(i).Name
		switch f := full.Field(i); f.Kind() {
		case reflect.Slice, reflect.Map, reflect.String:
			if f.Len() != fresh.Field(i).Len() {
				t.Errorf("%s has %d left", name, f.Len())
			}
		case reflect.Bool, reflect.Int, reflect.Uint32, reflect.Uint64, reflect.Int64:
			if !f.IsZero() {
				t.Errorf("%s is not zero", name)
			}
		default:
		}
	}
}
