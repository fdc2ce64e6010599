package load

import (
	"testing"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func TestLeadersThatMoved(t *testing.T) {
	at := func(addrs ...string) []*lockpb.Leader {
		var leaders []*lockpb.Leader
		for i, addr := range addrs {
			leaders = append(leaders, &lockpb.Leader{Group: uint32(i), Node: "n", Grpc: addr})
		}
		return leaders
	}
	for _, test := range []struct {
		leaders []*lockpb.Leader
		want    bool
	}{
		{nil, false}, // nothing is told
		{at("a"), false},
		{at("b", "a"), false},
		{at("b"), true},
		{at("b", "c"), true},
		{at(""), false}, // a node that does not say where it is
	} {
		if got := leadsNot(test.leaders, "a"); got != test.want {
			t.Errorf("leaders %v: %v", test.leaders, got)
		}
	}
}
