package lock

import (
	"encoding/binary"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// words is what a request calls things by. They stand together in one text: the lengths, the first plus 1 or 0 if the
// request has no claim, then the words.
type words struct {
	resource lease.Resource // while it has a claim
	owner    string         // the same; "" is its client
	id       lease.RequestID
}

// spell stores the words of a request with a claim.
func (t *texts) spell(w words) text { return t.put(len(w.resource)+1, w) }

// spellID stores the words of a request without one.
func (t *texts) spellID(id lease.RequestID) text { return t.put(0, words{id: id}) }

func (t *texts) put(mark int, w words) text {
	var buf [3 * binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(buf[:0], uint64(mark))
	head = binary.AppendUvarint(head, uint64(len(w.owner)))
	head = binary.AppendUvarint(head, uint64(len(w.id)))
	at, cell := t.add(len(head) + len(w.resource) + len(w.owner) + len(w.id))
	n := copy(cell, head)
	n += copy(cell[n:], w.resource)
	n += copy(cell[n:], w.owner)
	copy(cell[n:], w.id)
	return at
}

// words makes strings of a text, all in one allocation.
func (t *texts) words(at text) words {
	cell := t.peek(at)
	_, h := headOf(cell)
	s := string(cell[h.start : h.start+h.resource+h.owner+h.id])
	return words{
		resource: lease.Resource(s[:h.resource]),
		owner:    s[h.resource : h.resource+h.owner],
		id:       lease.RequestID(s[h.resource+h.owner:]),
	}
}

// resource is the bytes of a text's resource; good until the next change of any text.
func (t *texts) resource(at text) []byte {
	cell := t.peek(at)
	_, h := headOf(cell)
	return cell[h.start : h.start+h.resource]
}

// id is the bytes of a text's request id; good until the next change of any text.
func (t *texts) id(at text) []byte {
	cell := t.peek(at)
	_, h := headOf(cell)
	from := h.start + h.resource + h.owner
	return cell[from : from+h.id]
}

// resources walks the resources of all claims, in no order.
func (t *texts) resources(yield func([]byte) bool) {
	for size, page := range t.pages {
		for ; len(page) > 0; page = page[size:] {
			if claims, h := headOf(page); claims && !yield(page[h.start:h.start+h.resource]) {
				return
			}
		}
	}
}

// head is where the words are in a cell.
type head struct{ start, resource, owner, id int }

// headOf reads the lengths. A cell that is free has no claim.
func headOf(cell []byte) (claims bool, h head) {
	mark := uvarint(cell, &h.start)
	h.owner = uvarint(cell, &h.start)
	h.id = uvarint(cell, &h.start)
	h.resource = max(0, mark-1)
	return mark > 0, h
}

// uvarint reads one length and moves on. It trusts the machine's own bytes.
func uvarint(cell []byte, at *int) int {
	v := 0
	for shift := 0; ; shift += 7 {
		b := cell[*at]
		*at++
		v |= int(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}
