package api

import (
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// versioned is a group of which only the cluster's version is known.
type versioned struct {
	Group
	version uint32
}

func (g versioned) Info() lock.Info { return lock.Info{Version: g.version} }

// A heartbeat is one command where all that it asks for is one command's doing; any other is left to its unary form.
func TestHeartbeatThatIsOneCommand(t *testing.T) {
	idOf := func(group uint16) string { return newLeaseID(group).String() }
	for _, test := range []struct {
		name    string
		version uint32
		ids     []string
		group   uint16
		one     bool
		refused lockpb.Reason
	}{
		{name: "of the first group", version: 2, ids: []string{idOf(0), idOf(0)}, one: true},
		{name: "of the second group", version: 2, ids: []string{idOf(1)}, group: 1, one: true},
		{name: "of two groups", version: 2, ids: []string{idOf(0), idOf(1)}},
		{name: "with an id that is none", version: 2, ids: []string{idOf(0), "x"}},
		{name: "with an id of no group", version: 2, ids: []string{idOf(0), idOf(9)}},
		{name: "with nothing but an id that is none", version: 2, ids: []string{"x"}},
		{name: "in a cluster that does not know the command", version: 1, ids: []string{idOf(0)}},
		{name: "of no lease", version: 2, refused: lockpb.Reason_INVALID},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &Server{}
			for number := range uint16(2) {
				s.shards = append(s.shards, newShard(s, number, versioned{version: test.version}))
			}
			c := &sessionCall{}
			x := &session{Server: s, identity: "team:app"}
			sh, cmd, refused := x.beatOf(c, &lockpb.HeartbeatRequest{LeaseIds: test.ids})
			if test.refused != 0 {
				if refused == nil || refused.reason() != test.refused {
					t.Fatalf("got %v, want %v", refused, test.refused)
				}
				return
			}
			if refused != nil || sh == nil {
				t.Fatalf("got group %v, refused %v", sh, refused)
			}
			if !test.one {
				if cmd != nil {
					t.Errorf("got %v, want no command", cmd)
				}
				return
			}
			many, ok := cmd.(lock.RenewMany)
			if !ok || sh.number != test.group || many.Identity != x.identity || len(many.Leases) != len(test.ids) {
				t.Fatalf("got %v for group %d", cmd, sh.number)
			}
			for i, id := range many.Leases {
				if want, err := lease.ParseID(test.ids[i]); err != nil || id != want {
					t.Errorf("lease %d is %v, want %v", i, id, want)
				}
			}
		})
	}
}
