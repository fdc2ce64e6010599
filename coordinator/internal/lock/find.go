package lock

import (
	"hash/maphash"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// What the indexes find things by. The keys stand in the records, so a slot must be taken out of an index before its
// record changes.

// hashes makes the hashes of keys, with a seed of the process.
type hashes struct{ seed maphash.Seed }

func (h hashes) client(by lease.Identity, name []byte) uint64 {
	return maphash.String(h.seed, string(by))*spread + maphash.Bytes(h.seed, name)
}

func (h hashes) bytes(key []byte) uint64 { return maphash.Bytes(h.seed, key) }

func (h hashes) request(client slot, id []byte) uint64 {
	if seeded.Is(seeded.MemoryWithoutClient) {
		client = none
	}
	return maphash.Bytes(h.seed, id) + uint64(client+1)*spread
}

// spread is an odd number whose multiples differ in all of their bits.
const spread = 0x9e37_79b9_7f4a_7c15

func (m *Machine) hashOfClient(i slot) uint64 {
	c := m.clients.peek(i)
	return m.hashes.client(c.identity, c.nameIn(&m.rolls))
}

func (m *Machine) hashOfRequest(q slot) uint64 {
	r := m.requests.peek(q)
	return m.hashes.request(r.client, m.texts.id(r.text()))
}

func (m *Machine) hashOfLease(q slot) uint64 {
	return m.hashes.bytes(m.texts.lease(m.requests.peek(q).text()))
}

func (m *Machine) hashOfHeld(q slot) uint64 {
	return m.hashes.bytes(m.texts.resource(m.requests.peek(q).text()))
}

func (m *Machine) findClient(by lease.Identity, name lease.ClientID) (slot, bool) {
	hash := maphash.String(m.hashes.seed, string(by))*spread + maphash.String(m.hashes.seed, string(name))
	return m.byClient.find(hash, func(i slot) bool {
		c := m.clients.peek(i)
		return string(c.nameIn(&m.rolls)) == string(name) && c.identity == by
	})
}

func (m *Machine) findRequest(client slot, id lease.RequestID) (slot, bool) {
	hashed := client
	if seeded.Is(seeded.MemoryWithoutClient) {
		hashed = none
	}
	return m.byRequest.find(maphash.String(m.hashes.seed, string(id))+uint64(hashed+1)*spread, func(q slot) bool {
		r := m.requests.peek(q)
		return (r.client == client || seeded.Is(seeded.MemoryWithoutClient)) && string(m.texts.id(r.text())) == string(id)
	})
}

// findClaim finds the request whose claim has the lease id.
func (m *Machine) findClaim(id lease.ID) (slot, bool) {
	return m.byLease.find(maphash.Bytes(m.hashes.seed, id[:]), func(q slot) bool {
		return string(m.texts.lease(m.requests.peek(q).text())) == string(id[:])
	})
}

// findHeld finds the request that holds a resource, if there is nothing else about it.
func (m *Machine) findHeld(name lease.Resource) (slot, bool) {
	return m.byResource.find(maphash.String(m.hashes.seed, string(name)), func(q slot) bool {
		return string(m.texts.resource(m.requests.peek(q).text())) == string(name)
	})
}

// wordsOf makes strings of what a request calls things by.
func (m *Machine) wordsOf(q slot) words { return m.texts.words(m.requests.peek(q).text()) }

// termsOf reads what else stands in a request's text.
func (m *Machine) termsOf(q slot) terms { return m.texts.terms(m.requests.peek(q).text()) }

// resourceOf is the name of what a claim is about.
func (m *Machine) resourceOf(q slot) lease.Resource { return m.wordsOf(q).resource }

// isOn reports whether a claim is about the resource.
func (m *Machine) isOn(q slot, name lease.Resource) bool {
	return string(m.texts.resource(m.requests.peek(q).text())) == string(name)
}

// rulesOf is rulesFor the resource of a claim.
func (m *Machine) rulesOf(q slot) *rules {
	if len(m.policies) == 0 {
		return &m.rules
	}
	return m.rulesFor(m.resourceOf(q))
}
