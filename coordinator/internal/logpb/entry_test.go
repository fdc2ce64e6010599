package logpb

import (
	"crypto/ed25519"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// everyCommand has each kind of command with each field set.
func everyCommand() lock.Entry {
	id := lease.ID{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	return lock.Entry{Now: 1_234_567_890, Commands: []lock.Command{
		lock.Init{Cluster: "c0ffee", Version: 1, Config: testConfig()},
		lock.NewLeader{Node: "n1", Term: 7},
		lock.PutKey{Node: "n1", KeyID: "k1", Public: make(ed25519.PublicKey, ed25519.PublicKeySize)},
		lock.Acquire{
			Identity: "team-a", Client: "worker-1", Request: "r-1", Owner: "thread-1", Resource: "ledger/eu",
			Mode: lease.Exclusive, TTL: 30 * time.Second, Wait: time.Minute, Lease: id, Call: 99,
			AsOf: 1_234_000_000, Sequence: 5, Acknowledged: 4,
		},
		lock.Renew{Identity: "team-a", Lease: id, TTL: time.Minute},
		lock.Release{Identity: "team-a", Lease: id},
		lock.Cancel{Identity: "team-a", Client: "worker-1", Request: "r-1", AsOf: 1_234_000_000},
		lock.Detach{Identity: "team-a", Client: "worker-1", Request: "r-1", Call: 99},
		lock.Break{Identity: "admin", Resource: "ledger/eu"},
		lock.Tick{},
	}}
}

func testConfig() lock.Config {
	return lock.Config{
		DefaultTTL: 30 * time.Second, MinTTL: 5 * time.Second, MaxTTL: time.Hour,
		MaxWait: 5 * time.Minute, RetryWindow: time.Minute, Grace: 10 * time.Second,
		ClaimWindow: 11 * time.Second, HeadStart: time.Second,
		MaxWaiters: 1000, MaxRequests: 2000, MaxExpiries: 3000,
	}
}

func TestEntryRoundTrip(t *testing.T) {
	timedOut := lock.Entry{Commands: []lock.Command{lock.Cancel{Client: "worker-1", Request: "r-1", TimedOut: true}}}
	bounded := lock.Init{Cluster: "c0ffee", Version: 2, Config: testConfig()}
	bounded.Config.MaxTenantRequests = 4000
	remembered := lock.Entry{Commands: []lock.Command{bounded, lock.PutPolicy{
		Target: lock.Target{Kind: lock.TargetTenant, Name: "acme"}, Policy: lock.Policy{MaxRequests: new(int64(7))},
	}}}
	for _, want := range []lock.Entry{{Commands: []lock.Command{}}, everyCommand(), everyLaterCommand(), timedOut, remembered} {
		b, err := EncodeEntry(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestEntryDamage(t *testing.T) {
	b, err := EncodeEntry(everyCommand())
	if err != nil {
		t.Fatal(err)
	}
	for cut := range b {
		if _, err := DecodeEntry(b[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: got %v, want ErrCorrupt", cut, err)
		}
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		want := ErrCorrupt
		if bit/8 == 0 {
			want = ErrUnknown
		}
		if _, err := DecodeEntry(b); !errors.Is(err, want) {
			t.Errorf("bit %d flipped: got %v, want %v", bit, err, want)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// TestUnknownStops feeds what a newer release may write. Each must be an error, never a value without it.
func TestUnknownStops(t *testing.T) {
	field := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	bytesField := func(number protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	}
	for name, body := range map[string][]byte{
		"field of the entry":   field,
		"kind of command":      bytesField(2, bytesField(900, nil)),
		"empty command":        bytesField(2, nil),
		"field of a tick":      bytesField(2, bytesField(10, field)),
		"field of a release":   bytesField(2, bytesField(6, append(bytesField(2, make([]byte, 16)), field...))),
		"field of the config":  bytesField(2, bytesField(1, bytesField(3, field))),
		"field beside command": bytesField(2, append(bytesField(10, nil), field...)),
		"mode": bytesField(2, bytesField(4, append(bytesField(9, make([]byte, 16)),
			protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 7)...))),
	} {
		if e, err := DecodeEntry(sealEntry(body)); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown %s: got %+v, %v, want ErrUnknown", name, e, err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, c := range map[string]lock.Command{
		"not UTF-8": lock.Break{Resource: "\xff"},
		"no mode":   lock.Acquire{Mode: 9},
	} {
		if _, err := EncodeEntry(lock.Entry{Commands: []lock.Command{c}}); err == nil {
			t.Errorf("%s: was encoded", name)
		}
	}
	for _, now := range []lock.LeaseTime{-1, lock.MaxLeaseTime + 1} {
		if _, err := EncodeEntry(lock.Entry{Now: now}); err == nil {
			t.Errorf("lease time %d was encoded", now)
		}
		body := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(now))
		if _, err := DecodeEntry(sealEntry(body)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("lease time %d: got %v, want ErrCorrupt", now, err)
		}
	}
}

func BenchmarkEncodeEntry(b *testing.B) {
	e := lock.Entry{Commands: slices.Repeat([]lock.Command{everyCommand().Commands[3], everyCommand().Commands[4]}, 100)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeEntry(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	e := lock.Entry{Commands: slices.Repeat([]lock.Command{everyCommand().Commands[3], everyCommand().Commands[4]}, 100)}
	encoded, err := EncodeEntry(e)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEntry(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
