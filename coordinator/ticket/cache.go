package ticket

import (
	"crypto/sha256"
	"sync"
)

// verdicts remembers tickets that verified, under one version of the key ring. Refusals are not kept: they would
// let whoever sends rubbish push the good ones out. It holds at most twice its size: when the young half is full
// it becomes the old one, and what was not asked for since then is forgotten.
type verdicts struct {
	mu         sync.Mutex
	size       int
	version    uint64
	young, old map[[32]byte]Claims
}

func newVerdicts(size int) *verdicts {
	return &verdicts{size: size, young: map[[32]byte]Claims{}}
}

func (v *verdicts) get(raw string, version uint64) (Claims, bool) {
	key := sha256.Sum256([]byte(raw))
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version != version {
		return Claims{}, false
	}
	c, ok := v.young[key]
	if !ok {
		if c, ok = v.old[key]; ok {
			v.add(key, c)
		}
	}
	return c, ok
}

func (v *verdicts) put(raw string, version uint64, c Claims) {
	key := sha256.Sum256([]byte(raw))
	v.mu.Lock()
	defer v.mu.Unlock()
	if version < v.version {
		return // verified under a ring that has been replaced since
	}
	if version > v.version {
		v.version, v.young, v.old = version, map[[32]byte]Claims{}, nil
	}
	v.add(key, c)
}

func (v *verdicts) add(key [32]byte, c Claims) {
	if len(v.young) >= v.size {
		v.young, v.old = map[[32]byte]Claims{}, v.young
	}
	v.young[key] = c
}
