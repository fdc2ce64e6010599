package group

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// contacts is what a leader knows of the others from their answers, heartbeats included.
type contacts struct {
	mu     sync.Mutex
	by     map[raft.ServerID]contact
	awaits map[raft.ServerID]chan struct{} // closed at the next answer
}

// contact is the last answer of another node.
type contact struct {
	at  time.Time
	end uint64 // of its log
}

func newContacts() *contacts {
	return &contacts{by: make(map[raft.ServerID]contact), awaits: make(map[raft.ServerID]chan struct{})}
}

func (c *contacts) met(id raft.ServerID, end uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[id] = contact{time.Now(), end}
	if awaited := c.awaits[id]; awaited != nil {
		close(awaited)
		delete(c.awaits, id)
	}
}

// next is closed at the next answer of a node, or by release.
func (c *contacts) next(id raft.ServerID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaits[id] == nil {
		c.awaits[id] = make(chan struct{})
	}
	return c.awaits[id]
}

// last is the zero contact if there was none.
func (c *contacts) last(id raft.ServerID) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[id]
}

// release ends every wait for an answer.
func (c *contacts) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, awaited := range c.awaits {
		close(awaited)
	}
	clear(c.awaits)
}

// forget is for a node that is no longer a member.
func (c *contacts) forget(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, id)
}
