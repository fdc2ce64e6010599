package lock

import (
	"encoding/binary"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// words is what a request calls things by. They stand in one text: three lengths, that of the resource plus 1 or 0 if the
// request has no claim; the id of the lease if it has one; the words; and then the terms.
type words struct {
	resource lease.Resource // while it has a claim
	owner    string         // the same; "" is its client
	id       lease.RequestID
}

// spell stores what there is to say of a request.
func (t *texts) spell(w *words, s *terms) text {
	var room [usualText]byte
	b := append(appendHead(room[:0], w, s), w.resource...)
	b = append(append(b, w.owner...), w.id...)
	b = s.append(b)
	at, cell := t.add(len(b))
	copy(cell, b)
	return at
}

// usualText is room for most texts; a longer one is put together elsewhere.
const usualText = 256

func appendHead(b []byte, w *words, s *terms) []byte {
	mark := 0
	if s.claims {
		mark = len(w.resource) + 1
	}
	b = binary.AppendUvarint(b, uint64(mark))
	b = binary.AppendUvarint(b, uint64(len(w.owner)))
	b = binary.AppendUvarint(b, uint64(len(w.id)))
	if s.claims {
		b = append(b, s.lease[:]...)
	}
	return b
}

// words makes strings of a text, all in one allocation.
func (t *texts) words(at text) words {
	cell := t.peek(at)
	_, h := headOf(cell)
	s := string(cell[h.start:h.terms()])
	return h.cut(s)
}

// resource is the bytes of a text's resource; good until the next change of any text.
func (t *texts) resource(at text) []byte {
	cell := t.peek(at)
	_, h := headOf(cell)
	return cell[h.start : h.start+h.resource]
}

// owned reports whether a text has an owner.
func (t *texts) owned(at text) bool {
	_, h := headOf(t.peek(at))
	return h.owner > 0
}

// id is the bytes of a text's request id; good until the next change of any text.
func (t *texts) id(at text) []byte {
	cell := t.peek(at)
	_, h := headOf(cell)
	return cell[h.start+h.resource+h.owner : h.terms()]
}

// lease is the bytes of the lease id of a claim's text; good until the next change of any text.
func (t *texts) lease(at text) []byte {
	cell := t.peek(at)
	_, h := headOf(cell)
	return cell[h.start-len(lease.ID{}) : h.start]
}

// terms reads the terms of a text.
func (t *texts) terms(at text) (s terms) {
	cell := t.peek(at)
	claims, h := headOf(cell)
	s.read(cell[h.terms():], claims)
	if claims {
		s.lease = lease.ID(cell[h.start-len(lease.ID{}) : h.start])
	}
	return s
}

// sequence is the first of the terms.
func (t *texts) sequence(at text) uint64 {
	cell := t.peek(at)
	_, h := headOf(cell)
	from := h.terms()
	return uvarint(cell, &from)
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

// cut cuts a string that begins with the words.
func (h *head) cut(s string) words {
	id := h.resource + h.owner
	return words{resource: lease.Resource(s[:h.resource]), owner: s[h.resource:id], id: lease.RequestID(s[id : id+h.id])}
}

// terms is where the words end.
func (h *head) terms() int { return h.start + h.resource + h.owner + h.id }

// headOf reads the lengths. A cell that is free has no claim.
func headOf(cell []byte) (claims bool, h head) {
	if b := cell[:3:3]; b[0]|b[1]|b[2] < 0x80 { // as most are
		h = head{start: 3, owner: int(b[1]), id: int(b[2])}
		if b[0] == 0 {
			return false, h
		}
		h.start, h.resource = h.start+len(lease.ID{}), int(b[0])-1
		return true, h
	}
	mark := uvarint(cell, &h.start)
	h.owner = int(uvarint(cell, &h.start))
	h.id = int(uvarint(cell, &h.start))
	if mark == 0 {
		return false, h
	}
	h.resource = int(mark - 1)
	h.start += len(lease.ID{})
	return true, h
}

// uvarint reads one number and moves on. It trusts the machine's own bytes.
func uvarint(cell []byte, at *int) uint64 {
	v := uint64(0)
	for shift := 0; ; shift += 7 {
		b := cell[*at]
		*at++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}
