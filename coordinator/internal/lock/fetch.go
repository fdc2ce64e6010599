package lock

// fetched is how many leases are fetched at once: what ending them needs fits into the caches of a core.
const fetched = 64

// fetch looks at what ending the leases will look at. It changes nothing and is only about time: each record, text and
// place of an index is somewhere else in memory, and where hundreds of thousands of leases stand none of it is in a cache.
// Ending one lease waits for one after the other; here the processor waits for many at once, as no step of a loop
// needs the one before. What it returns is of no meaning, but without it the compiler would leave all this out.
func (m *Machine) fetch(leases []slot) (seen int) {
	var at [fetched]text
	var clients [fetched]slot
	for i, l := range leases {
		r := m.requests.peek(l)
		at[i], clients[i] = r.text(), r.client
	}
	for i := range leases {
		seen += int(m.texts.peek(at[i])[0]) + int(m.clients.peek(clients[i]).requests)
	}
	for i := range leases {
		seen += int(m.clients.peek(clients[i]).nameCell(&m.rolls)[0])
		seen += m.byLease.touch(m.hashes.bytes(m.texts.lease(at[i])))
		seen += m.byResource.touch(m.hashes.bytes(m.texts.resource(at[i])))
		seen += m.byRequest.touch(m.hashes.request(clients[i], m.texts.id(at[i])))
	}
	return seen
}
