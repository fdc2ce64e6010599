package api

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func goodAcquire() *lockpb.AcquireRequest {
	return &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "worker-1", RequestId: "r-1"}
}

func TestParseAcquire(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*lockpb.AcquireRequest)
		field  string // empty: accepted
	}{
		"good":                      {func(*lockpb.AcquireRequest) {}, ""},
		"longest resource":          {func(r *lockpb.AcquireRequest) { r.Resource = strings.Repeat("r", 256) }, ""},
		"no resource":               {func(r *lockpb.AcquireRequest) { r.Resource = "" }, "resource"},
		"long resource":             {func(r *lockpb.AcquireRequest) { r.Resource = strings.Repeat("r", 257) }, "resource"},
		"resource not UTF-8":        {func(r *lockpb.AcquireRequest) { r.Resource = "a\xff" }, "resource"},
		"resource with a space":     {func(r *lockpb.AcquireRequest) { r.Resource = "a b" }, "resource"},
		"resource not normalised":   {func(r *lockpb.AcquireRequest) { r.Resource = "a/../b" }, "resource"},
		"resource with double dash": {func(r *lockpb.AcquireRequest) { r.Resource = "a//b" }, "resource"},
		"no client":                 {func(r *lockpb.AcquireRequest) { r.ClientId = "" }, "client_id"},
		"no request":                {func(r *lockpb.AcquireRequest) { r.RequestId = "" }, "request_id"},
		"long request":              {func(r *lockpb.AcquireRequest) { r.RequestId = strings.Repeat("r", 129) }, "request_id"},
		"bad owner":                 {func(r *lockpb.AcquireRequest) { r.Owner = "a b" }, "owner"},
		"ttl 0":                     {func(r *lockpb.AcquireRequest) { r.Ttl = proto.Int32(0) }, "ttl"},
		"negative ttl":              {func(r *lockpb.AcquireRequest) { r.Ttl = proto.Int32(-1) }, "ttl"},
		"smallest ttl":              {func(r *lockpb.AcquireRequest) { r.Ttl = proto.Int32(-1 << 31) }, "ttl"},
		"negative wait":             {func(r *lockpb.AcquireRequest) { r.WaitTimeout = -1 }, "wait_timeout"},
		"unknown mode":              {func(r *lockpb.AcquireRequest) { r.Mode = 7 }, "mode"},
		"negative as_of":            {func(r *lockpb.AcquireRequest) { r.AsOf = -1 }, "as_of"},
		"acknowledges itself":       {func(r *lockpb.AcquireRequest) { r.Sequence, r.Acknowledged = 5, 5 }, "acknowledged"},
		"acknowledges earlier ones": {func(r *lockpb.AcquireRequest) { r.Sequence, r.Acknowledged = 5, 4 }, ""},
	} {
		in := goodAcquire()
		test.change(in)
		_, refused := parseAcquire("anonymous", in)
		checkField(t, name, refused, test.field)
	}
}

func checkField(t *testing.T, name string, refused *refusal, field string) {
	t.Helper()
	switch {
	case field == "" && refused != nil:
		t.Errorf("%s: %v", name, refused)
	case field != "" && refused == nil:
		t.Errorf("%s: accepted, want field %s refused", name, field)
	case field != "" && (refused.reason() != lockpb.Reason_INVALID || refused.detail.GetField() != field || refused.maybe()):
		t.Errorf("%s: got %v, want INVALID, not applied, in field %s", name, refused.detail, field)
	}
}

func TestParseOthers(t *testing.T) {
	id := strings.Repeat("0f", 16)
	_, refused := parseRenew("", &lockpb.RenewRequest{LeaseId: id})
	checkField(t, "renew", refused, "")
	_, refused = parseRenew("", &lockpb.RenewRequest{LeaseId: "42"})
	checkField(t, "renew with a token", refused, "lease_id")
	_, refused = parseRenew("", &lockpb.RenewRequest{LeaseId: id, Ttl: proto.Int32(0)})
	checkField(t, "renew for 0", refused, "ttl")
	_, refused = parseRelease("", &lockpb.ReleaseRequest{LeaseId: strings.Repeat("zz", 16)})
	checkField(t, "release", refused, "lease_id")
	_, refused = parseCancel("", &lockpb.CancelRequest{ClientId: "c"})
	checkField(t, "cancel", refused, "request_id")
	_, refused = parseBreak("", &lockpb.BreakRequest{Resource: "/"})
	checkField(t, "break", refused, "resource")
	for name, test := range map[string]struct {
		in    *lockpb.ListRequest
		field string
	}{
		"everything":       {&lockpb.ListRequest{}, ""},
		"a folder":         {&lockpb.ListRequest{Prefix: "ledger/", After: "ledger/eu", Limit: 1000}, ""},
		"bad prefix":       {&lockpb.ListRequest{Prefix: "//"}, "prefix"},
		"bad after":        {&lockpb.ListRequest{After: "a b"}, "after"},
		"too many":         {&lockpb.ListRequest{Limit: 1001}, "limit"},
		"less than nobody": {&lockpb.ListRequest{Limit: -1}, "limit"},
	} {
		_, refused := parseList(test.in)
		checkField(t, name, refused, test.field)
	}
}

func TestMillisecondsNeverWrap(t *testing.T) {
	for d, want := range map[int64]int32{-1: 0, 999_999: 0, 1_999_999: 1, 1 << 62: 1<<31 - 1} {
		if got := milliseconds(time.Duration(d)); got != want {
			t.Errorf("%d ns: got %d, want %d", d, got, want)
		}
	}
}
