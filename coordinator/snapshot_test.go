package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// save streams a snapshot from a node.
func (r *running) save(i int) []byte {
	r.t.Helper()
	stream, err := r.cluster(i).Save(r.context(), &lockpb.SaveRequest{})
	check(r.t, err)
	var file bytes.Buffer
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return file.Bytes()
		}
		check(r.t, err)
		file.Write(message.GetChunk())
	}
}

// A snapshot has whatever was acknowledged before, in every group, whichever node is asked.
func TestASnapshotHasWhatWasAcknowledged(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	for i := range 3 {
		for g := range uint16(groups) {
			r.acquire(i, resourceOf(g, groups, fmt.Sprintf("n%d", i)), "A")
		}
		file := r.save(i)
		saved, err := CheckSnapshot(bytes.NewReader(file))
		check(t, err)
		if len(saved.Groups) != groups || saved.Cluster == "" || saved.Version == 0 || saved.Node != r.configs[i].Node {
			t.Errorf("saved %+v", saved)
		}
		for _, g := range saved.Groups {
			if g.Leases != i+1 || g.LastToken != lease.Token(i+1) || g.Index == 0 || g.Term == 0 {
				t.Errorf("snapshot %d, group %d: %+v, want %d leases", i+1, g.Group, g, i+1)
			}
		}
		for _, n := range []int{len(file) / 2, len(file) - 1} {
			if _, err := CheckSnapshot(bytes.NewReader(file[:n])); !errors.Is(err, ErrSnapshotCut) {
				t.Errorf("cut to %d of %d bytes: %v", n, len(file), err)
			}
		}
		file[len(file)/2] ^= 4
		if _, err := CheckSnapshot(bytes.NewReader(file)); !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("with a flipped bit: %v", err)
		}
	}
}

// What an operator sets holds in every group.
func TestOrdersReachEveryGroup(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	_, err := r.cluster(1).PutPolicy(r.context(), &lockpb.PutPolicyRequest{Policy: &lockpb.Policy{
		Of: &lockpb.Policy_Prefix{Prefix: "p/"}, MaxTtl: proto.Int64(5000),
	}})
	check(t, err)
	out, err := r.cluster(2).Policies(r.context(), &lockpb.PoliciesRequest{})
	check(t, err)
	if len(out.GetPolicies()) != 1 || len(out.GetBehind()) != 0 {
		t.Errorf("policies %v", out)
	}
	for g := range uint16(groups) {
		_, err := r.locks(0).Acquire(r.context(), &lockpb.AcquireRequest{
			Resource: resourceOf(g, groups, "p"), ClientId: "A", RequestId: "1", Ttl: proto.Int32(6000),
		})
		if reason, _ := refusalOf(t, err); reason != lockpb.Reason_TTL_OUT_OF_RANGE {
			t.Errorf("group %d: %v", g, err)
		}
	}

	before, err := r.cluster(0).Keys(r.context(), &lockpb.KeysRequest{})
	check(t, err)
	rotated, err := r.cluster(0).Rotate(r.context(), &lockpb.RotateRequest{})
	check(t, err)
	old := map[string]bool{}
	for _, key := range before.GetKeys() {
		old[key.GetKeyId()] = true
	}
	signing := map[string]int{}
	for _, key := range rotated.GetKeys() {
		if old[key.GetKeyId()] != key.GetRetiring() {
			t.Errorf("key %s of %s, there before: %v, retiring: %v", key.GetKeyId(), key.GetNode(), old[key.GetKeyId()], key.GetRetiring())
		}
		if !key.GetRetiring() {
			signing[key.GetNode()]++
		}
	}
	if len(rotated.GetMissed()) != 0 || len(signing) != 3 {
		t.Errorf("missed %v, nodes with a new key: %v", rotated.GetMissed(), signing)
	}
	for i := range r.configs { // and it is the one of a restart
		r.stop(i)
	}
	r.startAll()
	after, err := r.cluster(0).Keys(r.context(), &lockpb.KeysRequest{})
	check(t, err)
	if len(after.GetKeys()) != len(rotated.GetKeys()) {
		t.Errorf("%d keys after a restart, %d before", len(after.GetKeys()), len(rotated.GetKeys()))
	}
}
