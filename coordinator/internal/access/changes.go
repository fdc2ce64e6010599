package access

import "sync"

// changes tells whoever waits that something is not what it was.
type changes struct {
	mu      sync.Mutex
	changed chan struct{}
}

// next is closed at the next change.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
