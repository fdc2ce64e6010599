package coordinator

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func (r *running) cluster(i int) lockpb.ClusterClient {
	r.t.Helper()
	conn, err := grpc.NewClient(r.nodes[i].node.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return lockpb.NewClusterClient(conn)
}

// until asks a node for its status until it is as wanted.
func (r *running) until(i int, what string, done func(*lockpb.StatusResponse) bool) *lockpb.StatusResponse {
	r.t.Helper()
	client := r.cluster(i)
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // between two looks
		s, err := client.Status(r.context(), &lockpb.StatusRequest{Digest: true}, grpc.WaitForReady(true))
		check(r.t, err)
		if done(s) {
			return s
		}
	}
	r.t.Fatalf("node %d: %s: not in time", i+1, what)
	return nil
}

// The folder of a node is emptied twice: while the others serve it joins again and has what they have; with only one of the
// others it waits, and says so.
func TestEmptiedFolder(t *testing.T) {
	r := newRunning(t, 3)
	r.startAll()
	first := r.leader()
	lost, other := (first+1)%3, (first+2)%3
	held, err := r.locks(lost).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "A", RequestId: "1"})
	check(t, err)
	r.stop(lost)
	check(t, os.RemoveAll(r.configs[lost].Dir))
	r.start(lost)
	r.awaitReady(lost)
	renewed, err := r.locks(lost).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	if err != nil || renewed.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("renewal through the node: %v, %v", renewed, err)
	}
	r.until(lost, "the same digest", func(mine *lockpb.StatusResponse) bool {
		theirs, err := r.cluster(first).Status(r.context(), &lockpb.StatusRequest{Digest: true})
		check(t, err)
		return mine.GetDigest() == theirs.GetDigest()
	})

	for i := range 3 {
		r.stop(i)
	}
	check(t, os.RemoveAll(r.configs[lost].Dir))
	r.start(lost)
	r.start(other)
	s := r.until(lost, "it waits for a majority", func(s *lockpb.StatusResponse) bool {
		return strings.HasPrefix(s.GetPending(), "catching up")
	})
	if !s.GetBlank() || s.GetLeader() != "" {
		t.Errorf("it says %v", s)
	}
	if code, text := r.get(lost, "/readyz"); code != http.StatusServiceUnavailable ||
		!strings.HasPrefix(text, "catching up: this node's folder was empty") {
		t.Errorf("readyz: %d %s", code, text)
	}
	_, err = r.locks(lost).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "x", ClientId: "B", RequestId: "1"})
	if reason, applied := refusalOf(t, err); reason != lockpb.Reason_NO_LEADER || applied != lockpb.Applied_NO {
		t.Errorf("an acquire: %v, applied %v", reason, applied)
	}
	r.start(first)
	r.awaitReady(lost)
	if s := r.until(lost, "it takes part", func(s *lockpb.StatusResponse) bool { return s.GetPending() == "" }); s.GetBlank() {
		t.Errorf("it says %v", s)
	}
	renewed, err = r.locks(lost).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	if err != nil || renewed.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("renewal at last: %v, %v", renewed, err)
	}
}

// refusalOf is what an error says of its call.
func refusalOf(t *testing.T, err error) (lockpb.Reason, lockpb.Applied) {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*lockpb.Refusal); ok {
			return r.GetReason(), r.GetApplied()
		}
	}
	t.Fatalf("no refusal: %v", err)
	return 0, 0
}

// Before all members have been up, there is no cluster, and each says who is missing.
func TestClusterIsCreatedByAllMembers(t *testing.T) {
	r := newRunning(t, 3)
	r.start(0)
	r.start(1)
	missing := func(s *lockpb.StatusResponse) bool { return strings.HasSuffix(s.GetPending(), "start n3") }
	for i := range 2 {
		if s := r.until(i, "only n3 is missing", missing); !s.GetBlank() {
			t.Errorf("node %d says %v", i+1, s)
		}
	}
	if code, text := r.get(0, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "start n3") {
		t.Errorf("readyz: %d %s", code, text)
	}
	r.start(2)
	for i := range 3 {
		r.awaitReady(i)
	}
	for node, want := range map[string]lockpb.Reason{
		"n1": lockpb.Reason_INVALID, "nobody": lockpb.Reason_NO_SUCH_MEMBER, "": lockpb.Reason_NO_SUCH_MEMBER,
	} {
		_, err := r.cluster(0).Meet(r.context(), &lockpb.MeetRequest{Node: node, Blank: true})
		if reason, _ := refusalOf(t, err); reason != want {
			t.Errorf("a question of %q: %v", node, err)
		}
	}
}

// A gRPC address that is another node's is noticed, and its answer is not taken.
func TestMeetingTheWrongNode(t *testing.T) {
	r := newRunning(t, 3)
	r.start(1)
	r.until(1, "it waits", func(s *lockpb.StatusResponse) bool { return s.GetBlank() })
	meeting := api.NewMeeting([]api.Member{{ID: "n2", GRPC: r.nodes[1].node.GRPCAddr()}, {ID: "n3", GRPC: r.nodes[1].node.GRPCAddr()}}, api.Security{}, 0, 1, func(error) {})
	question := group.Question{From: "n1", Blank: true}
	if answer, err := meeting.Ask(r.context(), "n2", question); err != nil || !answer.Blank {
		t.Errorf("n2 answers %+v, %v", answer, err)
	}
	if answer, err := meeting.Ask(r.context(), "n3", question); err == nil || !strings.Contains(err.Error(), `"n3" is that of node "n2"`) {
		t.Errorf("n2 answers for n3: %+v, %v", answer, err)
	}
}
