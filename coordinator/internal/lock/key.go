package lock

import (
	"cmp"
	"crypto/ed25519"
	"slices"
)

// Key is a ticket key as it stands.
type Key struct {
	Node   string
	KeyID  string
	Public ed25519.PublicKey
	Until  LeaseTime // it verifies until then, and signs no more; 0: it has not been retired
}

// Retiring says that the key signs no more and is going to be dropped.
func (k Key) Retiring() bool { return k.Until != 0 }

// RetireKey lets a key verify until After; then it is dropped. Refused with ReasonNoSuchKey if it is not known.
type RetireKey struct {
	Node  string
	KeyID string
	After LeaseTime
}

func (RetireKey) command() {}

// KeyRetired says that a key signs no more and verifies until an instant.
type KeyRetired struct {
	Node  string
	KeyID string
	Until LeaseTime
}

// KeyDropped says that a key verifies no more.
type KeyDropped struct {
	Node  string
	KeyID string
}

func (KeyRetired) event() {}
func (KeyDropped) event() {}

// maxKeys bounds the keys from cluster version 2 on, retiring ones included.
const maxKeys = 1000

func (m *Machine) putKey(c PutKey) Result {
	at, found := m.findKey(c.Node, c.KeyID)
	if found {
		return Done{}
	}
	if m.version >= 2 && len(m.keys) >= maxKeys {
		return Refused{Reason: ReasonTooManyKeys, Count: maxKeys}
	}
	// A snapshot may share the old slice.
	m.keys = slices.Insert(slices.Clone(m.keys), at, Key{Node: c.Node, KeyID: c.KeyID, Public: slices.Clone(c.Public)})
	m.emit(KeyAdded{Node: c.Node, KeyID: c.KeyID})
	return Done{}
}

func (m *Machine) findKey(node, id string) (int, bool) {
	return slices.BinarySearchFunc(m.keys, Key{Node: node, KeyID: id}, compareKeys)
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.KeyID, b.KeyID))
}

func (m *Machine) retireKey(c RetireKey) Result {
	at, found := m.findKey(c.Node, c.KeyID)
	if !found {
		return Refused{Reason: ReasonNoSuchKey}
	}
	m.keys = slices.Clone(m.keys)
	m.keys[at].Until = max(c.After, m.now, 1)
	m.emit(KeyRetired{Node: c.Node, KeyID: c.KeyID, Until: m.keys[at].Until})
	m.dropKeys()
	return Done{}
}

// dropKeys drops the keys whose time is up.
func (m *Machine) dropKeys() {
	if !slices.ContainsFunc(m.keys, m.keyIsOver) {
		return
	}
	for _, k := range m.keys {
		if m.keyIsOver(k) {
			m.emit(KeyDropped{Node: k.Node, KeyID: k.KeyID})
		}
	}
	m.keys = slices.DeleteFunc(slices.Clone(m.keys), m.keyIsOver)
}

func (m *Machine) keyIsOver(k Key) bool { return k.Retiring() && k.Until <= m.now }
