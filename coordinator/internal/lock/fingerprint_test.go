package lock

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// The fingerprints of requests are in snapshots, so their values are fixed for good. These were computed once, by
// an implementation of FNV-1a that was written out by hand.
func TestFingerprintStaysWhatItIs(t *testing.T) {
	whole := Acquire{Resource: "ledger/eu", Owner: "thread-1", Mode: lease.Exclusive, TTL: 30 * time.Second}
	for _, test := range []struct {
		name string
		c    Acquire
		want uint64
	}{
		{"nothing", Acquire{}, 0xc8210784d8af5a5},
		{"no owner", Acquire{Resource: "a", Mode: lease.Exclusive}, 0xa3ae2e9b01bc511e},
		{"shared", Acquire{Resource: "a", Mode: lease.Shared}, 0x54b018d2eea738dd},
		{"whole", whole, 0xb9799f9bca6f082a},
	} {
		if got := fingerprint(test.c); got != test.want {
			t.Errorf("%s: got %#x, want %#x", test.name, got, test.want)
		}
	}
	other := whole
	other.Identity, other.Client, other.Request, other.Lease = "me", "c", "r", lease.NewID(0, [14]byte{1})
	other.Wait, other.AsOf, other.Call, other.Sequence = time.Second, 1, 2, 3
	if fingerprint(other) != fingerprint(whole) {
		t.Error("what may differ between copies changes the fingerprint")
	}
}

func BenchmarkFingerprint(b *testing.B) {
	c := Acquire{Resource: "ledger/eu", Owner: "thread-1", Mode: lease.Exclusive, TTL: 30 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		fingerprint(c)
	}
}
