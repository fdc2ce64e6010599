package lock

import (
	"encoding/binary"
	"sort"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// A client's name and the list of its numbered requests stand in cells too: as many small objects, made among what is
// soon garbage, they would hold far more memory than they fill.

// addClient stores a client and its name.
func (m *Machine) addClient(c clientRecord, name lease.ClientID) slot {
	var buf [binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(buf[:0], uint64(len(name)))
	at, cell := m.rolls.add(len(head) + len(name))
	copy(cell[copy(cell, head):], name)
	c.name, c.nameClass = at.cell, at.class
	i := m.clients.add(c)
	m.byClient.add(m.hashOfClient(i), i)
	return i
}

// dropClient forgets a client that has no requests.
func (m *Machine) dropClient(i slot) {
	c := m.clients.get(i)
	m.byClient.remove(m.hashOfClient(i), i)
	m.rolls.remove(text{c.name, c.nameClass})
	m.clients.remove(i)
}

// nameIn is the bytes of a client's name; good until the next change of any client.
func (c *clientRecord) nameIn(rolls *texts) []byte {
	cell, from := c.nameCell(rolls), 0
	n := int(uvarint(cell, &from))
	return cell[from : from+n]
}

func (c *clientRecord) nameCell(rolls *texts) []byte { return rolls.peek(text{c.name, c.nameClass}) }

// nameOf makes a string of a client's name.
func (m *Machine) nameOf(client slot) lease.ClientID {
	return lease.ClientID(m.clients.peek(client).nameIn(&m.rolls))
}

// partiesOf makes strings of what a request calls things by and of its client's name, all in one allocation.
func (m *Machine) partiesOf(r *requestRecord) (words, lease.ClientID) {
	cell := m.texts.peek(r.text())
	_, h := headOf(cell)
	var buf [256]byte
	b := append(buf[:0], cell[h.start:h.terms()]...)
	s := string(append(b, m.clients.peek(r.client).nameIn(&m.rolls)...))
	return h.cut(s), lease.ClientID(s[h.terms()-h.start:])
}

// number files a request under the number that its client gave it.
func (m *Machine) number(client, q slot, sequence uint64) {
	if sequence == 0 {
		return
	}
	c := m.clients.edit(client)
	at := m.placeOf(c, sequence)
	m.resizeList(c, int(c.numbered)+1)
	list := m.listOf(c)
	copy(list[4*at+4:], list[4*at:])
	binary.LittleEndian.PutUint32(list[4*at:], uint32(q))
}

// unnumber drops a request from the list, in which it is if its number is above acknowledged.
func (m *Machine) unnumber(c *clientRecord, q slot, sequence uint64) {
	for at := m.placeOf(c, sequence); at < int(c.numbered) && m.sequenceOf(m.numberedAt(c, at)) == sequence; at++ {
		if m.numberedAt(c, at) == q {
			m.cutList(c, at, 1)
			return
		}
	}
}

// placeOf is where the first request that is numbered so or above stands in a client's list.
func (m *Machine) placeOf(c *clientRecord, sequence uint64) int {
	n := int(c.numbered)
	if n > 0 && m.sequenceOf(m.numberedAt(c, n-1)) < sequence { // as most are
		return n
	}
	return sort.Search(n, func(i int) bool { return m.sequenceOf(m.numberedAt(c, i)) >= sequence })
}

func (m *Machine) sequenceOf(q slot) uint64 { return m.texts.sequence(m.requests.peek(q).text()) }

func (m *Machine) numberedAt(c *clientRecord, i int) slot {
	return slot(binary.LittleEndian.Uint32(m.rolls.peek(text{c.list, c.listClass})[4*i:]))
}

// numberedOf copies a client's list.
func (m *Machine) numberedOf(c *clientRecord, n int) []slot {
	list := make([]slot, n)
	for i := range list {
		list[i] = m.numberedAt(c, i)
	}
	return list
}

// listOf is the bytes of a client's list, for changing them.
func (m *Machine) listOf(c *clientRecord) []byte {
	return m.rolls.edit(text{c.list, c.listClass})[:4*c.numbered]
}

// cutList takes n entries out of a client's list.
func (m *Machine) cutList(c *clientRecord, at, n int) {
	if n == 0 {
		return
	}
	list := m.listOf(c)
	copy(list[4*at:], list[4*(at+n):])
	m.resizeList(c, int(c.numbered)-n)
}

// resizeList gives a client's list room for n entries, in a cell that fits. A shrinking one is moved when it fills less
// than half of its cell, so that one that goes up and down is not.
func (m *Machine) resizeList(c *clientRecord, n int) {
	old, had := text{c.list, c.listClass}, int(c.numbered)
	c.numbered = uint32(n)
	if had > 0 && n > 0 && 4*n <= sizeOf(old.class) && (n >= had || 8*n >= sizeOf(old.class)) {
		return
	}
	if n > 0 {
		at, cell := m.rolls.add(4 * n)
		if had > 0 {
			copy(cell, m.rolls.peek(old)[:4*min(n, had)])
		}
		c.list, c.listClass = at.cell, at.class
	}
	if had > 0 {
		m.rolls.remove(old)
	}
}
