package api

import (
	"sync"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// news tells all who listen that something has changed, and not what: they look.
type news struct {
	mu      sync.Mutex
	changed chan struct{}
}

func newNews() *news { return &news{changed: make(chan struct{})} }

// next is closed at the next change. Ask for it before looking.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// leaders says who leads each group, in the order of their numbers, as far as this node knows.
func (s *Server) leaders() []*lockpb.Leader {
	leaders := make([]*lockpb.Leader, len(s.shards))
	for i, sh := range s.shards {
		node, _ := sh.group.Leader()
		leaders[i] = &lockpb.Leader{Group: uint32(sh.number), Node: node}
		if sh.replicated() { // who calls through a gateway goes on to do so: it may not reach the nodes
			leaders[i].Grpc = s.peers.address(node)
		}
	}
	return leaders
}
