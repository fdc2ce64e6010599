package explore

import (
	"encoding/binary"
	"sync"
)

// visited is a set of keys, 16 bytes each at a load of three quarters at most. It is cut into shards, so that workers
// seldom meet and that no growing of it needs much more than the set itself.
type visited struct{ shards [shards]shard }

const (
	shards   = 256
	smallest = 1 << 8 // places of a shard
)

type shard struct {
	mu     sync.Mutex
	places []Key // open addressing; the zero key is a free place
	used   int
	_      [24]byte // no two shards in one line of a cache
}

func newVisited() *visited { return new(visited) }

// add reports whether the key is new.
func (v *visited) add(k Key) bool {
	if k == (Key{}) {
		k[0] = 1
	}
	s := &v.shards[k[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	if 4*(s.used+1) > 3*len(s.places) {
		s.grow()
	}
	at, known := s.find(k)
	if known {
		return false
	}
	s.places[at] = k
	s.used++
	return true
}

// find is where the key is, or the free place where it belongs.
func (s *shard) find(k Key) (int, bool) {
	last := len(s.places) - 1
	at := int(binary.LittleEndian.Uint64(k[8:])) & last
	for ; s.places[at] != (Key{}); at = (at + 1) & last {
		if s.places[at] == k {
			return at, true
		}
	}
	return at, false
}

func (s *shard) grow() {
	old := s.places
	s.places = make([]Key, max(smallest, 2*len(old)))
	for _, k := range old {
		if k != (Key{}) {
			at, _ := s.find(k)
			s.places[at] = k
		}
	}
}
