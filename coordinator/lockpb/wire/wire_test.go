package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func TestCallsAreWrittenAsProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := &lockpb.SessionRequest{Calls: rapid.SliceOfN(rapid.Custom(anyCall), 0, 4).Draw(t, "calls")}
		var got []byte
		for _, call := range request.GetCalls() {
			var err error
			if got, err = AppendCall(got, call); err != nil {
				t.Fatal(err)
			}
		}
		if want := marshal(t, request); !bytes.Equal(got, want) {
			t.Fatalf("%v is written as\n%x, protobuf writes\n%x", request, got, want)
		}
		var read lockpb.SessionRequest
		if err := ReadRequest(got, &read); err != nil || !proto.Equal(&read, request) {
			t.Fatalf("%v is read as %v, %v", request, &read, err)
		}
	})
}

func TestAnswersAreWrittenAsProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		response := &lockpb.SessionResponse{Answers: rapid.SliceOfN(rapid.Custom(anyAnswer), 0, 4).Draw(t, "answers")}
		if rapid.Bool().Draw(t, "leaders") {
			response.Leaders = []*lockpb.Leader{{Group: 1, Node: "n1", Grpc: "h:1"}, {}}
		}
		got, err := AppendResponse(nil, response)
		if err != nil {
			t.Fatal(err)
		}
		if want := marshal(t, response); !bytes.Equal(got, want) {
			t.Fatalf("%v is written as\n%x, protobuf writes\n%x", response, got, want)
		}
		var read lockpb.SessionResponse
		if err := ReadResponse(got, &read); err != nil || !proto.Equal(&read, response) {
			t.Fatalf("%v is read as %v, %v", response, &read, err)
		}
	})
}

// What is read by hand needs no message of protobuf: a change that has everything go the other way would otherwise pass.
func TestEverydayMessagesAreReadByHand(t *testing.T) {
	for _, call := range []*lockpb.Call{
		{Id: 1, Timeout: 5, Kind: &lockpb.Call_Acquire{Acquire: &lockpb.AcquireRequest{Resource: "r", Ttl: new(int32(5)), NoTicket: true}}},
		{Id: 2, Kind: &lockpb.Call_Renew{Renew: &lockpb.RenewRequest{LeaseId: "l", Ttl: new(int32(0))}}},
		{Id: 3, Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: "l"}}},
	} {
		if got := readCall(string(marshal(t, call))); !proto.Equal(got, call) {
			t.Errorf("%v is read as %v", call, got)
		}
	}
	for _, a := range []*lockpb.Answer{
		{Id: 1, Kind: &lockpb.Answer_Acquire{Acquire: &lockpb.AcquireResponse{LeaseId: "l", ExpiresAt: timestamppb.Now(), Ticket: "t"}}},
		{Id: 2, Kind: &lockpb.Answer_Release{Release: &lockpb.ReleaseResponse{Resource: "r", AsOf: 7}}},
	} {
		if got := readAnswer(string(marshal(t, a))); !proto.Equal(got, a) {
			t.Errorf("%v is read as %v", a, got)
		}
	}
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	call := &lockpb.Call{Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: "\xff"}}}
	before := []byte("before")
	if out, err := AppendCall(before, call); err == nil || !bytes.Equal(out, before) {
		t.Errorf("a call that is not UTF-8: %q, %v", out, err)
	}
	answer := &lockpb.Answer{Kind: &lockpb.Answer_Release{Release: &lockpb.ReleaseResponse{Resource: "\xff"}}}
	if out, err := AppendResponse(nil, &lockpb.SessionResponse{Answers: []*lockpb.Answer{answer}}); err == nil {
		t.Errorf("an answer that is not UTF-8: %q", out)
	}
}

// FuzzRequest compares what is read with what protobuf reads.
func FuzzRequest(f *testing.F) {
	for _, call := range everyKind {
		f.Add(marshal(f, &lockpb.SessionRequest{Calls: []*lockpb.Call{call, call}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want lockpb.SessionRequest
		agree(t, ReadRequest(b, &got), proto.Unmarshal(b, &want), &got, &want)
	})
}

// FuzzResponse does so for answers.
func FuzzResponse(f *testing.F) {
	for _, a := range everyAnswer {
		f.Add(marshal(f, &lockpb.SessionResponse{Answers: []*lockpb.Answer{a, a}, Leaders: []*lockpb.Leader{{Group: 1}}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want lockpb.SessionResponse
		agree(t, ReadResponse(b, &got), proto.Unmarshal(b, &want), &got, &want)
	})
}

func agree(t *testing.T, gotErr, wantErr error, got, want proto.Message) {
	t.Helper()
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("error %v, protobuf's is %v", gotErr, wantErr)
	}
	if gotErr == nil && !proto.Equal(got, want) {
		t.Fatalf("read %v, protobuf reads %v", got, want)
	}
}

func marshal(t rapid.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var everyKind = []*lockpb.Call{
	{Id: 1, Kind: &lockpb.Call_Acquire{Acquire: &lockpb.AcquireRequest{Resource: "r", ClientId: "c", Ttl: new(int32(9)), Mode: lockpb.Mode_SHARED}}},
	{Id: 2, Kind: &lockpb.Call_Renew{Renew: &lockpb.RenewRequest{LeaseId: "l", Ttl: new(int32(-1))}}},
	{Id: 3, Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: "l"}}, Timeout: 1 << 31},
	{Id: 4, Kind: &lockpb.Call_Cancel{Cancel: &lockpb.CancelRequest{RequestId: "q"}}},
	{Id: 5, Kind: &lockpb.Call_Heartbeat{Heartbeat: &lockpb.HeartbeatRequest{LeaseIds: []string{"l", ""}}}},
	{Id: 6, Kind: &lockpb.Call_Abandon{Abandon: &lockpb.Abandon{Id: 5}}},
	{},
}

var everyAnswer = []*lockpb.Answer{
	{Id: 1, Kind: &lockpb.Answer_Acquire{Acquire: &lockpb.AcquireResponse{LeaseId: "l", ExpiresAt: &timestamppb.Timestamp{Seconds: 1}, Retried: true}}},
	{Id: 2, Kind: &lockpb.Answer_Renew{Renew: &lockpb.RenewResponse{Remaining: 1}}},
	{Id: 3, Kind: &lockpb.Answer_Release{Release: &lockpb.ReleaseResponse{Resource: "r", FencingToken: 1 << 52}}},
	{Id: 4, Kind: &lockpb.Answer_Failure{Failure: &lockpb.Failure{Code: 5, Refusal: &lockpb.Refusal{}}}},
	{},
}

func anyCall(t *rapid.T) *lockpb.Call {
	text := rapid.StringN(0, 200, -1)
	call := proto.CloneOf(rapid.SampledFrom(everyKind).Draw(t, "kind"))
	call.Id, call.Timeout = rapid.Uint64().Draw(t, "id"), rapid.Uint32().Draw(t, "timeout")
	switch kind := call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		kind.Acquire = &lockpb.AcquireRequest{
			Resource: text.Draw(t, "resource"), ClientId: text.Draw(t, "client"), RequestId: text.Draw(t, "request"), Owner: text.Draw(t, "owner"),
			WaitTimeout: rapid.Int32().Draw(t, "wait"), Mode: lockpb.Mode(rapid.Int32Range(0, 3).Draw(t, "mode")),
			AsOf: rapid.Int64().Draw(t, "as_of"), Sequence: rapid.Uint64().Draw(t, "sequence"),
			Acknowledged: rapid.Uint64().Draw(t, "acknowledged"), NoTicket: rapid.Bool().Draw(t, "no_ticket"),
		}
		if rapid.Bool().Draw(t, "with ttl") {
			kind.Acquire.Ttl = new(rapid.Int32().Draw(t, "ttl"))
		}
	case *lockpb.Call_Release:
		kind.Release.LeaseId = text.Draw(t, "lease")
	}
	return call
}

func anyAnswer(t *rapid.T) *lockpb.Answer {
	text := rapid.StringN(0, 200, -1)
	a := proto.CloneOf(rapid.SampledFrom(everyAnswer).Draw(t, "kind"))
	a.Id = rapid.Uint64().Draw(t, "id")
	switch kind := a.GetKind().(type) {
	case *lockpb.Answer_Acquire:
		kind.Acquire = &lockpb.AcquireResponse{
			LeaseId: text.Draw(t, "lease"), FencingToken: rapid.Uint64().Draw(t, "token"), Ttl: rapid.Int32().Draw(t, "ttl"),
			Ticket: text.Draw(t, "ticket"), Remaining: rapid.Int32().Draw(t, "remaining"), Resource: text.Draw(t, "resource"),
			Mode: lockpb.Mode(rapid.Int32Range(0, 3).Draw(t, "mode")), Retried: rapid.Bool().Draw(t, "retried"),
			AsOf: rapid.Int64().Draw(t, "as_of"), Index: rapid.Uint64().Draw(t, "index"),
		}
		if rapid.Bool().Draw(t, "expires") {
			kind.Acquire.ExpiresAt = &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "seconds"), Nanos: rapid.Int32().Draw(t, "nanos")}
		}
	case *lockpb.Answer_Release:
		kind.Release = &lockpb.ReleaseResponse{
			Resource: text.Draw(t, "resource"), FencingToken: rapid.Uint64().Draw(t, "token"),
			AsOf: rapid.Int64().Draw(t, "as_of"), Index: rapid.Uint64().Draw(t, "index"),
		}
	}
	return a
}
