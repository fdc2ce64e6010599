package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// Tokens of the identities that the tests have. stranger is authenticated, and no rule knows it.
var testTokens = map[string]string{
	"acme:worker": "token-w", "acme:auditor": "token-a", "umbrella:worker": "token-u", "root": "token-r", "stranger": "token-s",
}

func testRules() []access.Rule {
	return []access.Rule{
		{Identity: "acme:worker", Prefix: "ledger/", Allow: []access.Right{access.Acquire, access.Read}},
		{Identity: "acme:worker", Prefix: "report/", Allow: []access.Right{access.Shared}},
		{Identity: "acme:auditor", Prefix: "", Allow: []access.Right{access.Read}},
		{Identity: "umbrella:*", Prefix: "umbrella/", Allow: []access.Right{access.Acquire, access.Read}},
		{Identity: "root", Prefix: "", Allow: access.Rights()},
	}
}

func newGuardedCluster(t *testing.T, n int) *cluster {
	t.Helper()
	var lines []string
	for id, token := range testTokens {
		lines = append(lines, access.Line(lease.Identity(id), token))
	}
	path := filepath.Join(t.TempDir(), "tokens")
	check(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return newSecureCluster(t, n, func(string) Security {
		tokens, err := access.NewTokens(path, slog.New(slog.DiscardHandler))
		check(t, err)
		rules, err := access.New(testRules())
		check(t, err)
		return Security{Tokens: tokens, Rules: rules}
	})
}

// by makes the calls under a context those of an identity, with its token.
func by(ctx context.Context, identity string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+testTokens[identity])
}

// requestOf is a request that a method would take, about resources below "ledger/".
func requestOf(t *testing.T, message protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(message.FullName())
	check(t, err)
	m := kind.New()
	for name, text := range map[protoreflect.Name]string{
		"resource": "ledger/eu", "client_id": "c1", "request_id": "r1", "lease_id": strings.Repeat("0", 32), "prefix": "ledger/",
	} {
		if f := message.Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			m.Set(f, protoreflect.ValueOfString(text))
		}
	}
	if f := message.Fields().ByName("lease_ids"); f != nil {
		m.Mutable(f).List().Append(protoreflect.ValueOfString(strings.Repeat("0", 32)))
	}
	return m.Interface()
}

// callAny makes one call of a method, whatever it is, and returns its status.
func callAny(t *testing.T, ctx context.Context, conn *grpc.ClientConn, method protoreflect.MethodDescriptor) error {
	t.Helper()
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	check(t, err)
	request, answer := requestOf(t, method.Input()), kind.New().Interface()
	if !method.IsStreamingServer() && !method.IsStreamingClient() {
		return conn.Invoke(ctx, path, request, answer)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, path)
	check(t, err)
	if !method.IsStreamingClient() {
		_ = stream.SendMsg(request) // its error comes with the answer
	}
	_ = stream.CloseSend()
	if err = stream.RecvMsg(answer); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func methods() (all []protoreflect.MethodDescriptor) {
	services := lockpb.File_coordinator_lockpb_lock_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			all = append(all, services.Get(i).Methods().Get(j))
		}
	}
	return all
}

// Whoever adds a method has to say what it asks of its caller.
func TestNoMethodIsOpenToStrangers(t *testing.T) {
	c := newGuardedCluster(t, 1)
	conn := c.nodes[0].dial(t)
	public := map[protoreflect.Name]bool{"Keys": true}
	// They are about what the caller holds, and a stranger holds nothing.
	owners := map[protoreflect.Name]bool{"Renew": true, "Release": true, "Heartbeat": true, "Session": true}
	all := methods()
	if len(all) < 20 {
		t.Fatalf("only %d methods were found", len(all))
	}
	for _, method := range all {
		name := method.Name()
		asked, listed := demandOf("/" + string(method.Parent().FullName()) + "/" + string(name))
		if !listed {
			t.Errorf("%s: demandOf does not know it", name)
		}
		unknown, stranger := callAny(t, c.context(), conn, method), callAny(t, by(c.context(), "stranger"), conn, method)
		switch {
		case public[name]:
			if unknown != nil || stranger != nil {
				t.Errorf("%s is public, and was answered with %v and %v", name, unknown, stranger)
			}
			continue
		case received(unknown, "?").reason() != lockpb.Reason_UNAUTHENTICATED:
			t.Errorf("%s by nobody: got %v, want UNAUTHENTICATED", name, unknown)
		}
		switch reason := received(stranger, "?").reason(); {
		case asked == toNodes: // see TestMethodsBetweenNodes
		case owners[name] && (stranger == nil || reason == lockpb.Reason_LEASE_ENDED):
		case reason != lockpb.Reason_PERMISSION_DENIED:
			t.Errorf("%s by a stranger: got %v, want PERMISSION_DENIED", name, stranger)
		}
	}
}

// With TLS, what nodes ask of one another is asked by members only. Without it nobody can be told from a node.
func TestMethodsBetweenNodes(t *testing.T) {
	ca, dir := tlstest.NewCA(t), t.TempDir()
	files := peertls.Files{CA: tlstest.Write(t, dir, "ca.crt", ca.PEM())}
	files.Cert, files.Key = ca.Issue(nil, "lychgate://node/n1").Write(t, dir, "n1")
	keys, err := peertls.New(peertls.Config{Files: files, Self: peertls.Name{Kind: peertls.Node, ID: "n1"}})
	check(t, err)
	n := newCluster(t, 1).nodes[0]
	n.server.config.Security.Keys = keys
	between := 0
	for _, method := range methods() {
		path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		if asked, _ := demandOf(path); asked != toNodes {
			continue
		}
		between++
		for name, want := range map[peertls.Name]bool{
			{}: false,
			{Kind: peertls.Client, ID: "acme:worker"}: false,
			{Kind: peertls.Gateway, ID: "g1"}:         false,
			{Kind: peertls.Node, ID: "n9"}:            false,
			{Kind: peertls.Node, ID: "n1"}:            true,
		} {
			for _, forwarded := range []bool{false, true} {
				c := n.server.authenticate(credentials{sender: name, forwarded: forwarded, behalf: []string{"root"}})
				if refused := n.server.demand(t.Context(), c, path); (refused == nil) != want {
					t.Errorf("%s by %q, sent on: %v: got %v", path, name, forwarded, refused)
				}
			}
		}
	}
	if between < 2 {
		t.Errorf("%d methods are between nodes", between)
	}
}

func TestNoPathIsOpenToStrangers(t *testing.T) {
	c := newGuardedCluster(t, 1)
	n := c.nodes[0]
	ask := func(method, path, body, token string) (int, errorBody) {
		request, err := http.NewRequestWithContext(c.context(), method, n.http.URL+path, strings.NewReader(body))
		check(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		defer response.Body.Close()
		var out errorBody
		_ = json.NewDecoder(response.Body).Decode(&out) // not every answer is one
		return response.StatusCode, out
	}
	for path, p := range restPaths() {
		if path == "/cluster/keys" {
			continue
		}
		request := requestOf(t, p.request.ProtoReflect().Descriptor())
		body, query := "", "?"
		if p.method == http.MethodPost {
			text, err := lockpbJSON(request)
			check(t, err)
			body = text
		} else {
			request.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
				query += f.TextName() + "=" + v.String() + "&"
				return true
			})
		}
		if code, out := ask(p.method, path+strings.TrimRight(query, "?&"), body, ""); code != http.StatusUnauthorized || out.Reason != "UNAUTHENTICATED" {
			t.Errorf("%s by nobody: got %d %v", path, code, out)
		}
		code, out := ask(p.method, path+strings.TrimRight(query, "?&"), body, testTokens["stranger"])
		switch path {
		case "/lock/heartbeat": // answers for each lease
			if code != http.StatusOK {
				t.Errorf("%s by a stranger: got %d %v", path, code, out)
			}
		case "/lock/renew", "/lock/release":
			if out.Reason != "LEASE_ENDED" {
				t.Errorf("%s by a stranger: got %d %v", path, code, out)
			}
		default:
			if code != http.StatusForbidden || out.Reason != "PERMISSION_DENIED" {
				t.Errorf("%s by a stranger: got %d %v", path, code, out)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/openapi.json", "/metrics", "/.well-known/jwks.json", "/cluster/keys"} {
		if code, _ := ask(http.MethodGet, path, "", ""); code != http.StatusOK {
			t.Errorf("%s by nobody: %d, want 200", path, code)
		}
	}
	if code, out := ask(http.MethodPost, "/lock/acquire", `{"resource":"ledger/eu","client_id":"c","request_id":"r"}`, "token-w"); code != http.StatusOK {
		t.Errorf("acquire by who may: %d %v", code, out)
	}
	if code, out := ask(http.MethodPost, "/lock/acquire", `{"resource":"ledger/eu","client_id":"c","request_id":"r"}`, "token-x"); code != http.StatusUnauthorized {
		t.Errorf("acquire with an unknown token: %d %v", code, out)
	}
}

// The rules are asked for the one who called, also where the call comes to the leader through another node, and in
// every form that an acquire has.
func TestRulesDecideOnEveryNode(t *testing.T) {
	c := newGuardedCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		acquire := func(id, resource string, mode lockpb.Mode) error {
			in := acquireOf(resource, "c1", n.id+resource, 0)
			in.Mode = mode
			out, err := n.locks.Acquire(by(c.context(), id), in)
			if err == nil {
				_, err = n.locks.Release(by(c.context(), id), &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
			}
			return err
		}
		for name, test := range map[string]struct {
			err    error
			denied bool
		}{
			"acquire what it may":              {acquire("acme:worker", "ledger/eu", lockpb.Mode_EXCLUSIVE), false},
			"acquire below another prefix":     {acquire("acme:worker", "other/eu", lockpb.Mode_EXCLUSIVE), true},
			"acquire shared without the right": {acquire("acme:worker", "ledger/eu", lockpb.Mode_SHARED), true},
			"acquire exclusively where shared": {acquire("acme:worker", "report/x", lockpb.Mode_EXCLUSIVE), true},
			"acquire where it may read":        {acquire("acme:auditor", "ledger/eu", lockpb.Mode_EXCLUSIVE), true},
			"acquire of another tenant":        {acquire("umbrella:worker", "ledger/eu", lockpb.Mode_EXCLUSIVE), true},
			"acquire by a pattern":             {acquire("umbrella:worker", "umbrella/a", lockpb.Mode_EXCLUSIVE), false},
		} {
			switch {
			case test.denied:
				wantRefusal(t, test.err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
			case test.err != nil:
				t.Errorf("%s at %s: %v", name, n.id, test.err)
			}
		}
		_, err := n.locks.Get(by(c.context(), "acme:worker"), &lockpb.GetRequest{Resource: "ledger/eu"})
		check(t, err)
		_, err = n.locks.Get(by(c.context(), "acme:worker"), &lockpb.GetRequest{Resource: "report/x"})
		wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
		_, err = n.locks.Break(by(c.context(), "acme:worker"), &lockpb.BreakRequest{Resource: "ledger/eu"})
		wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
		_, err = n.locks.Break(by(c.context(), "root"), &lockpb.BreakRequest{Resource: "ledger/eu"})
		check(t, err)
	}
}

// Who holds a lease is the identity that the first node found out, not what node the call came through.
func TestALeaseBelongsToWhoCalled(t *testing.T) {
	c := newGuardedCluster(t, 3)
	follower := c.followers()[0]
	out, err := follower.locks.Acquire(by(c.context(), "acme:worker"), acquireOf("ledger/eu", "c1", "r1", 0))
	check(t, err)
	seen, err := c.leader().locks.Get(by(c.context(), "acme:auditor"), &lockpb.GetRequest{Resource: "ledger/eu"})
	check(t, err)
	if id := seen.GetLock().GetHolders()[0].GetIdentity(); id != "acme:worker" {
		t.Errorf("held by %q, want acme:worker", id)
	}
	for _, other := range []string{"root", "stranger", "umbrella:worker"} {
		_, err := follower.locks.Renew(by(c.context(), other), &lockpb.RenewRequest{LeaseId: out.GetLeaseId()})
		wantRefusal(t, err, lockpb.Reason_NOT_OWNER, lockpb.Applied_NO)
	}
	_, err = c.leader().locks.Renew(by(c.context(), "acme:worker"), &lockpb.RenewRequest{LeaseId: out.GetLeaseId()})
	check(t, err)
}

// A list shows what may be read, page by page, and not even the name of anything else.
func TestListShowsWhatMayBeRead(t *testing.T) {
	c := newGuardedCluster(t, 3)
	for _, resource := range []string{"a/1", "ledger/1", "ledger/2", "ledger/3", "m/1", "umbrella/1", "z/1"} {
		_, err := c.leader().locks.Acquire(by(c.context(), "root"), acquireOf(resource, "c1", resource, 0))
		check(t, err)
	}
	list := func(n *node, id, prefix string) (names []string) {
		in := &lockpb.ListRequest{Prefix: prefix, Limit: 2}
		for {
			out, err := n.locks.List(by(c.context(), id), in)
			check(t, err)
			for _, l := range out.GetLocks() {
				names = append(names, l.GetResource())
			}
			if in.After = out.GetNext(); in.After == "" {
				return names
			}
			names = append(names, "|"+in.After)
		}
	}
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		for _, test := range []struct{ id, prefix, want string }{
			{"acme:worker", "", "ledger/1 ledger/2 |ledger/2 ledger/3"},
			{"acme:worker", "ledger/", "ledger/1 ledger/2 |ledger/2 ledger/3"},
			{"acme:worker", "ledger/3", "ledger/3"},
			{"umbrella:worker", "", "umbrella/1"},
			{"acme:auditor", "l", "ledger/1 ledger/2 |ledger/2 ledger/3"},
			{"acme:auditor", "z/", "z/1"},
		} {
			if got := strings.Join(list(n, test.id, test.prefix), " "); got != test.want {
				t.Errorf("%s lists %q at %s: got %q, want %q", test.id, test.prefix, n.id, got, test.want)
			}
		}
		_, err := n.locks.List(by(c.context(), "acme:worker"), &lockpb.ListRequest{Prefix: "z/"})
		wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
	}
}

// What a session carries is asked the same as what comes by itself.
func TestSessionAsksForRights(t *testing.T) {
	c := newGuardedCluster(t, 1)
	ctx, cancel := context.WithCancel(by(c.context(), "acme:worker"))
	defer cancel()
	stream, err := c.nodes[0].locks.Session(ctx)
	check(t, err)
	check(t, stream.Send(&lockpb.SessionRequest{Calls: []*lockpb.Call{
		{Id: 1, Kind: &lockpb.Call_Acquire{Acquire: acquireOf("other/eu", "c1", "r1", 0)}},
		{Id: 2, Kind: &lockpb.Call_Acquire{Acquire: acquireOf("ledger/eu", "c1", "r2", 0)}},
		{Id: 3, Kind: &lockpb.Call_Acquire{Acquire: acquireOf("other/us", "c1", "r3", time.Minute)}},
	}}))
	for answered := 0; answered < 3; {
		message, err := stream.Recv()
		check(t, err)
		for _, answer := range message.GetAnswers() {
			answered++
			reason := answer.GetFailure().GetRefusal().GetReason()
			if want := answer.GetId() != 2; (reason == lockpb.Reason_PERMISSION_DENIED) != want {
				t.Errorf("call %d: %v", answer.GetId(), answer)
			}
		}
	}
}

// A cancel of an unknown request is remembered, so who may only read cannot make one.
func TestCancelTakesTheRightToAcquireSomething(t *testing.T) {
	c := newGuardedCluster(t, 1)
	n := c.nodes[0]
	for id, allowed := range map[string]bool{"acme:worker": true, "acme:auditor": false} {
		cancel := &lockpb.CancelRequest{ClientId: "c1", RequestId: "r1", Resource: "ledger/eu"}
		_, err := n.locks.Cancel(by(c.context(), id), cancel)
		if (err == nil) != allowed || (!allowed && received(err, "?").reason() != lockpb.Reason_PERMISSION_DENIED) {
			t.Errorf("%s: %v", id, err)
		}
		stream, err := n.locks.Session(by(c.context(), id))
		check(t, err)
		check(t, stream.Send(&lockpb.SessionRequest{Calls: []*lockpb.Call{{Id: 1, Kind: &lockpb.Call_Cancel{Cancel: cancel}}}}))
		var answers []*lockpb.Answer
		for len(answers) == 0 {
			message, err := stream.Recv()
			check(t, err)
			answers = message.GetAnswers()
		}
		if reason := answers[0].GetFailure().GetRefusal().GetReason(); (answers[0].GetCancel() != nil) != allowed ||
			(!allowed && reason != lockpb.Reason_PERMISSION_DENIED) {
			t.Errorf("%s in a session: %v", id, answers[0])
		}
	}
}

// Who holds what may be told from the digest of it.
func TestDigestTakesTheRightToReadEverything(t *testing.T) {
	c := newGuardedCluster(t, 1)
	n := c.nodes[0]
	for id, allowed := range map[string]bool{"acme:auditor": true, "acme:worker": false} {
		_, err := n.cluster.Status(by(c.context(), id), &lockpb.StatusRequest{})
		check(t, err)
		_, err = n.cluster.Status(by(c.context(), id), &lockpb.StatusRequest{Digest: true})
		if reason := received(err, "?").reason(); (reason == lockpb.Reason_PERMISSION_DENIED) == allowed {
			t.Errorf("digest for %s: %v", id, err)
		}
		_, err = n.cluster.Status(by(c.context(), id), &lockpb.StatusRequest{SmallestLive: true})
		if reason := received(err, "?").reason(); (reason == lockpb.Reason_PERMISSION_DENIED) == allowed {
			t.Errorf("smallest live token for %s: %v", id, err)
		}
	}
}

// What a node asks of another on its own account takes no rule: here, how far the leader's log is.
func TestNodesAskOneAnotherOnTheirOwnAccount(t *testing.T) {
	c := newGuardedCluster(t, 3)
	stream, err := c.followers()[0].locks.Watch(by(c.context(), "acme:auditor"), &lockpb.WatchRequest{})
	check(t, err)
	_, err = stream.Recv()
	check(t, err)
	n := c.followers()[0].server
	status, err := n.peers.conn(c.leader().id)
	check(t, err)
	_, err = lockpb.NewClusterClient(status).Status(n.shards[0].outgoing(n.asSelf(c.context())), &lockpb.StatusRequest{})
	check(t, err)
	_, err = lockpb.NewClusterClient(status).Status(n.shards[0].outgoing(c.context()), &lockpb.StatusRequest{})
	wantRefusal(t, err, lockpb.Reason_UNAUTHENTICATED, lockpb.Applied_NO)
}

func TestWatchAndHotShowWhatMayBeRead(t *testing.T) {
	c := newGuardedCluster(t, 1)
	n := c.nodes[0]
	for _, resource := range []string{"ledger/1", "umbrella/1"} {
		_, err := n.locks.Acquire(by(c.context(), "root"), acquireOf(resource, "c1", resource, 0))
		check(t, err)
	}
	hot, err := n.locks.Hot(by(c.context(), "acme:worker"), &lockpb.HotRequest{})
	check(t, err)
	for _, r := range hot.GetResources() {
		if r.GetResource() != "ledger/1" {
			t.Errorf("hot shows %s", r.GetResource())
		}
	}
	if len(hot.GetResources()) == 0 {
		t.Error("hot shows nothing")
	}
	watch := func(prefix string) (lockpb.Locks_WatchClient, error) {
		stream, err := n.locks.Watch(by(c.context(), "acme:worker"), &lockpb.WatchRequest{Prefix: prefix})
		check(t, err)
		_, err = stream.Recv() // it has begun
		return stream, err
	}
	for _, prefix := range []string{"umbrella/", "z"} {
		_, err := watch(prefix)
		wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
	}
	for _, prefix := range []string{"", "ledger/"} {
		stream, err := watch(prefix)
		check(t, err)
		for _, resource := range []string{"umbrella/", "ledger/"} {
			_, err := n.locks.Acquire(by(c.context(), "root"), acquireOf(resource+"w"+prefix+"x", "c1", resource+prefix, 0))
			check(t, err)
		}
		for seen := false; !seen; {
			message, err := stream.Recv()
			check(t, err)
			for _, change := range message.GetChanges() {
				seen = seen || strings.HasPrefix(change.GetResource(), "ledger/")
				if strings.HasPrefix(change.GetResource(), "umbrella/") {
					t.Errorf("a watch of %q tells of %s", prefix, change.GetResource())
				}
			}
		}
	}
}

func lockpbJSON(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	return string(text), err
}
