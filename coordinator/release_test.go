package coordinator

import (
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A node says what its program knows, to a node that asks it for that; another node's answer is none.
func TestReleasesAreAskedFor(t *testing.T) {
	r := newRunning(t, 3)
	r.startAll()
	releases := api.NewReleases([]api.Member{
		{ID: "n2", GRPC: r.nodes[1].node.GRPCAddr()}, {ID: "n3", GRPC: r.nodes[1].node.GRPCAddr()},
	}, api.Security{})
	for _, c := range []struct {
		member, address string
		want            uint32
	}{
		{"n2", "", lock.MaxVersion},
		{"n2", "127.0.0.1:1", lock.MaxVersion}, // the configuration wins
		{"n1", r.nodes[0].node.GRPCAddr(), lock.MaxVersion},
		{"n3", "", 0},
	} {
		if got, err := releases.Known(r.context(), c.member, c.address); got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: got %d, %v, want %d", c.member, got, err, c.want)
		}
	}
}
