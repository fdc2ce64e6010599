package logpb

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// What a snapshot has many of is written as it would be with messages of protobuf, or refused as there.
func TestRecordsAreAsByProtobuf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var got, want bytes.Buffer
		quick, plain := &saver{frameWriter: &frameWriter{w: &got}}, &frameWriter{w: &want}
		for range rapid.IntRange(1, 5).Draw(rt, "records") {
			var errs [2]error
			if rapid.Bool().Draw(rt, "client") {
				c := someClient(rt)
				errs = [2]error{quick.client(c), plain.frame(&Frame{Kind: &Frame_Client{encodeClient(c)}})}
			} else {
				r := someRequest(rt)
				errs = [2]error{quick.request(r), plain.frame(&Frame{Kind: &Frame_Request{encodeRequest(r)}})}
			}
			if (errs[0] == nil) != (errs[1] == nil) {
				rt.Fatalf("got %v, by protobuf %v", errs[0], errs[1])
			}
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			rt.Fatalf("wrote %x, by protobuf %x", got.Bytes(), want.Bytes())
		}
	})
}

func someName(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "bü", "not UTF-8: \xff", rapid.String().Draw(rt, "name")}).Draw(rt, "name")
}

func someNumber(rt *rapid.T) int64 {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(rt, "number")
}

func someClient(rt *rapid.T) lock.SavedClient {
	return lock.SavedClient{
		Identity: lease.Identity(someName(rt)), Client: lease.ClientID(someName(rt)),
		Seq: uint64(someNumber(rt)), Acknowledged: uint64(someNumber(rt)), Until: lock.LeaseTime(someNumber(rt)),
	}
}

func someRequest(rt *rapid.T) lock.SavedRequest {
	return lock.SavedRequest{
		Request: lease.RequestID(someName(rt)), Seq: uint64(someNumber(rt)), Fingerprint: uint64(someNumber(rt)),
		Until: lock.LeaseTime(someNumber(rt)), Sequence: uint64(someNumber(rt)),
		Stage: lock.Stage(rapid.IntRange(int(lock.StageWaiting), int(lock.StageForestalled)).Draw(rt, "stage")),
		Claim: lock.SavedClaim{
			Resource: lease.Resource(someName(rt)), Owner: someName(rt), TTL: time.Duration(someNumber(rt)),
			Lease: lease.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id")), Mode: lease.Mode(rapid.IntRange(0, 2).Draw(rt, "mode")),
		},
		Waiter: lock.SavedWaiter{
			Deadline: lock.LeaseTime(someNumber(rt)), Grace: lock.LeaseTime(someNumber(rt)), Call: uint64(someNumber(rt)),
			Attached: rapid.Bool().Draw(rt, "attached"),
		},
		Lease: lock.SavedLease{
			Seq: uint64(someNumber(rt)), Token: lease.Token(someNumber(rt)), Since: lock.LeaseTime(someNumber(rt)),
			Deadline: lock.LeaseTime(someNumber(rt)), Unclaimed: rapid.Bool().Draw(rt, "unclaimed"),
		},
	}
}
