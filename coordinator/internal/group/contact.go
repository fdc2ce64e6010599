package group

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// contacts is what a leader knows of the others from their answers, heartbeats included.
type contacts struct {
	mu sync.Mutex
	by map[raft.ServerID]contact
}

// contact is the last answer of another node.
type contact struct {
	at  time.Time
	end uint64 // of its log
}

func newContacts() *contacts { return &contacts{by: make(map[raft.ServerID]contact)} }

func (c *contacts) met(id raft.ServerID, end uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[id] = contact{time.Now(), end}
}

// last is the zero contact if there was none.
func (c *contacts) last(id raft.ServerID) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[id]
}

// forget is for a node that is no longer a member.
func (c *contacts) forget(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, id)
}
