package lock

import (
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

// TestIndex compares an index with a map.
func TestIndex(t *testing.T) {
	const onePart, fewHashes = ^uint64(indexParts - 1), 3 << 32 // and with few distinct hashes everything collides
	for _, bits := range []uint64{1, fewHashes, 1 << 10, onePart, 1<<64 - 1} {
		seed := maphash.MakeSeed()
		keys := make(map[slot]uint64)
		hash := func(k uint64) uint64 { return maphash.Comparable(seed, k) & bits }
		x := newIndex(func(s slot) uint64 { return hash(keys[s]) })
		model := make(map[uint64]slot)
		random := rand.New(rand.NewPCG(1, bits))
		for range 20_000 {
			key := random.Uint64N(700)
			s, has := x.find(hash(key), func(s slot) bool { return keys[s] == key })
			want, wants := model[key]
			if has != wants || has && s != want {
				t.Fatalf("key %d: found %d %v, want %d %v", key, s, has, want, wants)
			}
			switch {
			case has && random.IntN(2) == 0:
				x.remove(hash(key), s)
				delete(keys, s)
				delete(model, key)
			case !has:
				s = slot(key + 7)
				keys[s], model[key] = key, s
				x.add(hash(key), s)
			}
		}
		for key, s := range model {
			x.remove(hash(key), s)
			delete(keys, s)
		}
		for i := range x.parts {
			if p := &x.parts[i]; p.used != 0 || len(p.places) > smallestPart {
				t.Fatalf("an empty part has %d used of %d places", p.used, len(p.places))
			}
		}
	}
}
