package feed

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// Position is a place in a group's log: behind the first Part changes of the entry at Index. It means the same on
// every node, since all replicas see the same changes in the same order.
type Position struct {
	Index uint64
	Part  uint32
}

// whole is the place behind everything of an entry.
func whole(index uint64) Position { return Position{Index: index, Part: math.MaxUint32} }

// After is the place behind the whole entry at an index.
func After(index uint64) Position { return whole(index) }

func (p Position) before(q Position) bool {
	return p.Index < q.Index || (p.Index == q.Index && p.Part < q.Part)
}

func later(p, q Position) Position {
	if p.before(q) {
		return q
	}
	return p
}

// Place is a position in the log of one group, in one of the group's lives.
type Place struct {
	Position
	Incarnation uint32
}

// Revision is a place in the logs of all groups of a cluster.
type Revision struct {
	Cluster [6]byte // see ClusterMark
	Groups  []Place // by number
}

// ClusterMark condenses a cluster's name, so that revisions of different clusters can be told apart.
func ClusterMark(name string) (mark [6]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(mark[:], sum[:])
	return mark
}

// revisionFormat is the first byte of a revision: it changes with the format.
const revisionFormat = 1

// maxGroups bounds what ParseRevision makes of a text from outside.
const maxGroups = 1 << 10

// String is the revision as it is handed out: text that goes into a URL as it is. Its end is a checksum, so that one
// that was cut or mistyped does not pass for another.
func (r Revision) String() string {
	b := append([]byte{revisionFormat}, r.Cluster[:]...)
	b = binary.AppendUvarint(b, uint64(len(r.Groups)))
	for _, g := range r.Groups {
		b = binary.AppendUvarint(b, uint64(g.Incarnation))
		b = binary.AppendUvarint(b, g.Index)
		b = binary.AppendUvarint(b, uint64(g.Part+1)) // the usual one, everything, becomes the short 0
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

var errRevision = errors.New("it is not a revision that a watch or a list gave")

// ParseRevision reads what String wrote, and nothing else.
func ParseRevision(text string) (Revision, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 4 {
		return Revision{}, errRevision
	}
	body := b[:len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return Revision{}, errRevision
	}
	var r Revision
	if len(body) < 1+len(r.Cluster) || body[0] != revisionFormat {
		return Revision{}, errRevision
	}
	copy(r.Cluster[:], body[1:])
	numbers := reader{rest: body[1+len(r.Cluster):]}
	count := numbers.next(maxGroups)
	for range count {
		incarnation, index, part := numbers.next(math.MaxUint32), numbers.next(math.MaxUint64), numbers.next(math.MaxUint32)
		if numbers.bad {
			break // a count that lies must not allocate
		}
		r.Groups = append(r.Groups, Place{Position{index, uint32(part) - 1}, uint32(incarnation)})
	}
	if numbers.bad || len(numbers.rest) > 0 || r.String() != text {
		return Revision{}, errRevision
	}
	return r, nil
}

// reader takes numbers off the front of bytes.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) next(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}
