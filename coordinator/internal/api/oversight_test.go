package api

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// governed is a node whose rules and tokens change.
type governed struct {
	*cluster
	path   string
	tokens *access.Tokens
	rules  *access.Rules
}

func newGoverned(t *testing.T) *governed {
	t.Helper()
	g := &governed{path: filepath.Join(t.TempDir(), "tokens")}
	g.writeTokens(t, "")
	var err error
	g.tokens, err = access.NewTokens(g.path, slog.New(slog.DiscardHandler))
	check(t, err)
	g.rules, err = access.New(testRules())
	check(t, err)
	g.cluster = newSecureCluster(t, 1, func(string) Security { return Security{Tokens: g.tokens, Rules: g.rules} })
	return g
}

// writeTokens writes all tokens but that of one identity.
func (g *governed) writeTokens(t *testing.T, but string) {
	t.Helper()
	var lines []string
	for id, token := range testTokens {
		if id != but {
			lines = append(lines, access.Line(lease.Identity(id), token))
		}
	}
	check(t, os.WriteFile(g.path, []byte(strings.Join(lines, "\n")), 0o600))
}

// revoke takes an identity's token away.
func (g *governed) revoke(identity string) {
	g.t.Helper()
	g.writeTokens(g.t, identity)
	take, err := g.tokens.Reload()
	check(g.t, err)
	take()
}

// take has rules count that are those of the tests but for one identity.
func (g *governed) take(identity string, instead ...access.Rule) {
	g.t.Helper()
	for _, rule := range testRules() {
		if rule.Identity != identity {
			instead = append(instead, rule)
		}
	}
	rules, err := access.New(instead)
	check(g.t, err)
	g.rules.Take(rules)
}

func (g *governed) talkAs(identity string) *talk {
	g.t.Helper()
	ctx, cancel := context.WithCancel(by(g.context(), identity))
	g.t.Cleanup(cancel)
	stream, err := g.nodes[0].locks.Session(ctx)
	check(g.t, err)
	return &talk{c: g.cluster, stream: stream, hangUp: cancel, answers: map[uint64]*lockpb.Answer{}}
}

// A session that is open asks the new rules for each further call; what it holds it can give back.
func TestOpenSessionIsJudgedByNewRules(t *testing.T) {
	g := newGoverned(t)
	s := g.talkAs("acme:worker")
	first := s.send(acquireCall(acquireOf("ledger/eu", "A", "1", 0)))
	held := s.answer(first).GetAcquire()
	if held.GetFencingToken() == 0 {
		t.Fatalf("the acquire was answered %v", s.answers[first])
	}
	g.take("acme:worker", access.Rule{Identity: "acme:worker", Prefix: "ledger/", Allow: []access.Right{access.Read}})
	s.wantFailure(s.send(acquireCall(acquireOf("ledger/us", "A", "2", 0))), lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
	again := s.send(releaseCall(held.GetLeaseId()))
	if s.answer(again).GetRelease() == nil {
		t.Errorf("the release was answered %v", s.answers[again])
	}
}

// A session ends with its token, and so does each other stream; what it waited for is not granted to it.
func TestStreamsEndWithTheirToken(t *testing.T) {
	g := newGoverned(t)
	n := g.nodes[0]
	s, other := g.talkAs("acme:worker"), g.talkAs("root")
	held := other.answer(other.send(acquireCall(acquireOf("ledger/eu", "R", "1", 0)))).GetAcquire()
	s.send(acquireCall(acquireOf("ledger/eu", "A", "1", 30*time.Second)))
	g.until("it waits", func() bool { return n.server.shards[0].info().Waiters == 1 })
	watch, err := n.locks.Watch(by(g.context(), "acme:worker"), &lockpb.WatchRequest{Prefix: "ledger/"})
	check(t, err)
	_, err = watch.Recv()
	check(t, err)
	follow, err := n.locks.Follow(by(g.context(), "acme:worker"), acquireOf("ledger/eu", "B", "1", 30*time.Second))
	check(t, err)
	_, err = follow.Recv()
	check(t, err)
	g.revoke("acme:worker")
	wantRefusal(t, s.end(), lockpb.Reason_UNAUTHENTICATED, lockpb.Applied_NO)
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	wantRefusal(t, err, lockpb.Reason_UNAUTHENTICATED, lockpb.Applied_NO)
	for err = nil; err == nil; {
		_, err = follow.Recv()
	}
	if reason := received(err, "?").reason(); reason != lockpb.Reason_UNAUTHENTICATED {
		t.Errorf("the followed wait ended with %v", err)
	}
	g.until("nobody is there", func() bool {
		out, err := n.locks.Get(by(g.context(), "root"), &lockpb.GetRequest{Resource: "ledger/eu"})
		check(t, err)
		for _, w := range out.GetLock().GetWaiters() {
			if w.GetAttached() {
				return false
			}
		}
		return true
	})
	released := other.answer(other.send(releaseCall(held.GetLeaseId()))) // the others go on
	if released.GetRelease() == nil || n.server.shards[0].info().Leases != 0 {
		t.Errorf("released: %v, then %d leases", released, n.server.shards[0].info().Leases)
	}
}

// A watch tells what may be read now, no more, and ends where that is nothing.
func TestOpenWatchIsJudgedByNewRules(t *testing.T) {
	g := newGoverned(t)
	n := g.nodes[0]
	stream, err := n.locks.Watch(by(g.context(), "acme:auditor"), &lockpb.WatchRequest{Prefix: "ledger/"})
	check(t, err)
	_, err = stream.Recv()
	check(t, err)
	reader := func(prefix string) access.Rule {
		return access.Rule{Identity: "acme:auditor", Prefix: prefix, Allow: []access.Right{access.Read}}
	}
	acquire := func(resource string) {
		t.Helper()
		_, err := n.locks.Acquire(by(g.context(), "root"), acquireOf(resource, "R", strings.ReplaceAll(resource, "/", "-"), 0))
		check(t, err)
	}
	g.take("acme:auditor", reader("ledger/eu"))
	acquire("ledger/us")
	acquire("ledger/eu")
	for told := ""; told == ""; {
		message, err := stream.Recv()
		check(t, err)
		if changes := message.GetChanges(); len(changes) > 0 {
			if told = saidAll(changes); !strings.HasPrefix(told, "GRANTED ledger/eu ") || len(changes) != 1 {
				t.Fatalf("told %s", told)
			}
		}
	}
	g.take("acme:auditor", reader("elsewhere/"))
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
}

// It is so over HTTP.
func TestHTTPStreamEndsWithItsToken(t *testing.T) {
	g := newGoverned(t)
	request, err := http.NewRequestWithContext(g.context(), http.MethodGet, g.nodes[0].http.URL+"/lock/watch?prefix=ledger/", nil)
	check(t, err)
	request.Header.Set("Authorization", "Bearer "+testTokens["acme:worker"])
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	defer answer.Body.Close()
	lines := make([]byte, 0, 4096)
	revoked := false
	for buffer := make([]byte, 1024); ; {
		n, err := answer.Body.Read(buffer)
		lines = append(lines, buffer[:n]...)
		if !revoked && len(lines) > 0 {
			revoked = true
			g.revoke("acme:worker")
		}
		if err != nil {
			break
		}
	}
	if text := string(lines); answer.StatusCode != http.StatusOK || !strings.Contains(text, `{"error":`) || !strings.Contains(text, "UNAUTHENTICATED") {
		t.Errorf("%s: %s", answer.Status, text)
	}
}
