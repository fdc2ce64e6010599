package logpb

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// encodeByMessages is what EncodeEntry does, by protobuf alone.
func encodeByMessages(e lock.Entry) ([]byte, error) {
	message := &Entry{Now: int64(e.Now)}
	for _, c := range e.Commands {
		message.Commands = append(message.Commands, encodeCommand(c))
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return sealEntryAs(entryVersion(e.Commands), body), err
}

// decodeByMessages is what decodeEntryBody does, by protobuf alone.
func decodeByMessages(body []byte) (lock.Entry, error) {
	var message Entry
	if err := proto.Unmarshal(body, &message); err != nil {
		return lock.Entry{}, err
	}
	if err := known(&message); err != nil {
		return lock.Entry{}, err
	}
	e := lock.Entry{Now: lock.LeaseTime(message.GetNow()), Commands: []lock.Command{}}
	if e.Now < 0 || e.Now > lock.MaxLeaseTime {
		return lock.Entry{}, ErrCorrupt
	}
	for _, m := range message.GetCommands() {
		c, err := decodeCommand(m)
		if err != nil {
			return lock.Entry{}, err
		}
		e.Commands = append(e.Commands, c)
	}
	return e, nil
}

// What is written and read without messages of protobuf is, to the byte, what it would be with them.
func TestEverydayCommandsAreAsByProtobuf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := lock.Entry{Now: lock.LeaseTime(rapid.Int64Range(0, int64(lock.MaxLeaseTime)).Draw(rt, "now")), Commands: []lock.Command{}}
		for range rapid.IntRange(0, 5).Draw(rt, "commands") {
			want.Commands = append(want.Commands, everydayCommand(rt))
		}
		got, err := EncodeEntry(want)
		if err != nil {
			rt.Fatal(err)
		}
		if plain, err := encodeByMessages(want); err != nil || !bytes.Equal(got, plain) {
			rt.Fatalf("encoded %x, by protobuf %x, %v", got, plain, err)
		}
		again, err := DecodeEntry(got)
		if err != nil || !reflect.DeepEqual(again, want) {
			rt.Fatalf("decoded %+v, %v, want %+v", again, err, want)
		}
	})
}

func everydayCommand(rt *rapid.T) lock.Command {
	text := func(label string) string {
		return rapid.SampledFrom([]string{"", "a", "bü", rapid.String().Draw(rt, label)}).Draw(rt, label)
	}
	id := func() lease.ID { return lease.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id")) }
	number := func(label string) int64 {
		return rapid.SampledFrom([]int64{0, 1, -1, rapid.Int64().Draw(rt, label)}).Draw(rt, label)
	}
	switch rapid.IntRange(0, 4).Draw(rt, "kind") {
	case 0:
		return lock.Acquire{
			Identity: lease.Identity(text("identity")), Client: lease.ClientID(text("client")),
			Request: lease.RequestID(text("request")), Owner: text("owner"), Resource: lease.Resource(text("resource")),
			Mode: rapid.SampledFrom([]lease.Mode{0, lease.Exclusive, lease.Shared}).Draw(rt, "mode"),
			TTL:  time.Duration(number("ttl")), Wait: time.Duration(number("wait")), Lease: id(), Call: uint64(number("call")),
			AsOf: lock.LeaseTime(number("as of")), Sequence: uint64(number("sequence")), Acknowledged: uint64(number("acknowledged")),
		}
	case 1:
		return lock.Renew{Identity: lease.Identity(text("identity")), Lease: id(), TTL: time.Duration(number("ttl"))}
	case 2:
		return lock.Release{Identity: lease.Identity(text("identity")), Lease: id()}
	case 3:
		many := lock.RenewMany{Identity: lease.Identity(text("identity")), Leases: []lease.ID{}}
		for range rapid.IntRange(0, 3).Draw(rt, "leases") {
			many.Leases = append(many.Leases, id())
		}
		return many
	}
	return lock.Cancel{Identity: lease.Identity(text("identity")), Client: lease.ClientID(text("client"))}
}
