package lock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// TestNumberedRequests compares a client's list with a sorted slice, while it grows to pages of its own and shrinks again.
func TestNumberedRequests(t *testing.T) {
	m := New()
	client := m.addClient(clientRecord{seq: 1}, "c")
	random := rand.New(rand.NewPCG(1, 2))
	numbers := make(map[slot]uint64)
	var want []slot
	place := func(n uint64) int {
		return max(0, slices.IndexFunc(append(want, none), func(q slot) bool { return q == none || numbers[q] >= n }))
	}
	for step := range 9000 {
		c := m.clients.edit(client)
		if grow := step < 5000; random.IntN(10) < 7 == grow || len(want) == 0 {
			n := random.Uint64N(1<<20) + 1
			at := m.texts.spell(&words{id: lease.RequestID("r")}, &terms{sequence: n})
			q := m.requests.add(requestRecord{seq: uint64(step) + 1, cell: at.cell, class: at.class, stage: StageEnded})
			want, numbers[q] = slices.Insert(want, place(n), q), n
			m.number(client, q, n)
		} else {
			at := random.IntN(len(want))
			m.unnumber(c, want[at], numbers[want[at]])
			want = slices.Delete(want, at, at+1)
		}
		if step%100 == 0 && !slices.Equal(m.numberedOf(c, int(c.numbered)), want) {
			t.Fatalf("step %d: %d numbers, want %d", step, c.numbered, len(want))
		}
	}
	c := m.clients.edit(client)
	if room := sizeOf(c.listClass); room > 8*len(want)+8 {
		t.Errorf("%d numbers have a cell of %d bytes", len(want), room)
	}
	m.cutList(c, 0, len(want))
	if c.numbered != 0 || m.nameOf(client) != "c" {
		t.Errorf("client %q has %d numbers left", m.nameOf(client), c.numbered)
	}
}

// TestLateNumberOfALease takes a lease through a snapshot whose number is far behind its request's, or ahead of it.
func TestLateNumberOfALease(t *testing.T) {
	for _, seq := range []uint64{3, 5, 1 << 31, 1<<32 + 4, 1<<32 + 5, 1 << 60} {
		saved := SavedRequest{
			Request: "r", Seq: 4, Stage: StageHeld, Until: -1, Fingerprint: 7, Sequence: 9,
			Claim: SavedClaim{Resource: "a", Lease: lease.NewID(0, [14]byte{1}), Owner: "o", TTL: 1, Mode: lease.Exclusive},
			Lease: SavedLease{Seq: seq, Token: 1, Since: 3, Deadline: 5, Unclaimed: true},
		}
		r, err := NewRestorer(Header{Counter: 1, Seq: 1 << 61, Now: 4, Config: Config{MaxWait: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Client(SavedClient{Client: "c", Seq: 1}); err != nil {
			t.Fatal(err)
		}
		if err := r.Request(saved); err != nil {
			t.Fatal(err)
		}
		m, err := r.Machine()
		if err != nil {
			t.Fatal(err)
		}
		for _, requests := range m.Snapshot().Clients() {
			for got := range requests {
				if got != saved {
					t.Errorf("got %+v, want %+v", got, saved)
				}
			}
		}
	}
}
