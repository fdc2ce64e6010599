package lock

// index finds the slot of a record by a hash of its key. It holds slots alone, four bytes each: the records hold the
// keys, and whoever asks compares them. It is a table of open addressing with linear probing, cut into parts that grow
// one at a time, so that no single command moves a million entries.
//
// The order of what it holds decides nothing, and neither do the hashes, which differ between processes: a client that
// chooses its names cannot choose where they collide.
type index struct {
	hash  func(slot) uint64 // of a record that is in the index
	parts [indexParts]part
	count int
}

// indexParts is the number of parts, a power of two.
const indexParts = 256

// part is one table. Each place has a mark of how far it is from where the search for its slot begins and of four bits of
// its hash: a search touches hardly any record but the one looked for, and a removal none.
type part struct {
	marks  []mark
	places []slot
	used   int
}

// mark is the distance plus 1, or farthest for that and more, and bits of the hash. 0: the place is free.
type mark uint8

const (
	smallestPart = 8
	farthest     = 15
)

func markOf(hash uint64, far int) mark { return mark(hash / indexParts & 0xf).at(far) }

// at is the mark of the same hash at another distance.
func (k mark) at(far int) mark { return mark(min(far, farthest)<<4) | k&0xf }

func newIndex(hash func(slot) uint64) *index { return &index{hash: hash} }

// find returns the slot under the hash that is the one looked for.
func (x *index) find(hash uint64, is func(slot) bool) (slot, bool) {
	p := x.part(hash)
	if p.used == 0 {
		return 0, false
	}
	at := p.home(hash)
	for far := 1; p.marks[at] != 0; far++ {
		if p.marks[at] == markOf(hash, far) && is(p.places[at]) {
			return p.places[at], true
		}
		at = p.after(at)
	}
	return 0, false
}

// touch looks at where the search for a hash begins, and returns something that depends on it.
func (x *index) touch(hash uint64) int {
	p := x.part(hash)
	if p.used == 0 {
		return 0
	}
	at := p.home(hash)
	return int(p.marks[at]) + int(p.places[at])
}

// add files a slot that is not in the index. At least a fifth of a part stays free.
func (x *index) add(hash uint64, s slot) {
	p := x.part(hash)
	if 5*(p.used+1) > 4*len(p.places) {
		x.grow(p)
	}
	p.put(hash, s)
	p.used++
	x.count++
}

// remove takes a slot out that is in the index under the hash, before its record changes. Those behind it move up, so
// that no gap cuts them off.
func (x *index) remove(hash uint64, s slot) {
	p := x.part(hash)
	gap := p.home(hash)
	for p.places[gap] != s || p.marks[gap] == 0 {
		gap = p.after(gap)
	}
	for at := p.after(gap); p.marks[at] != 0; at = p.after(at) {
		moves, far := p.distance(gap, at), x.farOf(p, at)
		if far > moves {
			p.places[gap], p.marks[gap] = p.places[at], p.marks[at].at(far-moves)
			gap = at
		}
	}
	p.marks[gap] = 0
	p.used--
	x.count--
	if len(p.places) > smallestPart && 4*p.used < len(p.places) {
		x.halve(p)
	}
}

// farOf is the exact distance plus 1 of a place that is taken.
func (x *index) farOf(p *part, at int) int {
	if far := int(p.marks[at] >> 4); far < farthest {
		return far
	}
	return p.distance(p.home(x.hash(p.places[at])), at) + 1
}

// all walks the slots, in no meaningful order.
func (x *index) all(yield func(slot) bool) {
	for i := range x.parts {
		for at, s := range x.parts[i].places {
			if x.parts[i].marks[at] != 0 && !yield(s) {
				return
			}
		}
	}
}

func (x *index) part(hash uint64) *part { return &x.parts[hash%indexParts] }

// grow makes a part larger by a fourth, and so that it can be halved a few times.
func (x *index) grow(p *part) {
	places := len(p.places) + len(p.places)/4
	old := p.renew((places/smallestPart + 1) * smallestPart)
	for i, s := range old.places {
		if old.marks[i] != 0 {
			p.put(x.hash(s), s)
		}
	}
}

// halve makes a part smaller. Where a search begins is then half of where it began, which a mark tells: no record is looked
// at, when many are removed that are somewhere in memory.
func (x *index) halve(p *part) {
	old := p.renew(len(p.places) / 2)
	exact := len(old.places) == 2*len(p.places)
	for i, s := range old.places {
		switch k := old.marks[i]; {
		case k == 0:
		case exact && k>>4 < farthest:
			p.place(old.before(i, int(k>>4)-1)/2, k&0xf, s)
		default:
			p.put(x.hash(s), s)
		}
	}
}

// renew empties a part and returns what was in it.
func (p *part) renew(places int) part {
	old := *p
	p.marks, p.places = make([]mark, places), make([]slot, places)
	return old
}

func (p *part) put(hash uint64, s slot) { p.place(p.home(hash), markOf(hash, 0), s) }

// place puts a slot at the first free place from its home on. The bits are those of its hash.
func (p *part) place(home int, bits mark, s slot) {
	at, far := home, 1
	for ; p.marks[at] != 0; far++ {
		at = p.after(at)
	}
	p.places[at], p.marks[at] = s, bits.at(far)
}

// home is where the search for a hash begins. The upper half of the hash is taken for a fraction of the part.
func (p *part) home(hash uint64) int { return int((hash >> 32) * uint64(len(p.places)) >> 32) }

func (p *part) after(at int) int {
	if at++; at < len(p.places) {
		return at
	}
	return 0
}

// before is so many places back.
func (p *part) before(at, moves int) int {
	if at -= moves; at >= 0 {
		return at
	}
	return at + len(p.places)
}

// distance is how far it is from one place on to another.
func (p *part) distance(from, to int) int {
	if d := to - from; d >= 0 {
		return d
	}
	return to - from + len(p.places)
}
