package lossyfs

// block is what pages and disks have in common: content is kept and compared in pieces of this size.
const block = 4096

// content is the bytes of a file. What was never written is zero and takes no memory.
type content struct {
	size   int64
	blocks map[int64]*[block]byte
}

func newContent() *content { return &content{blocks: make(map[int64]*[block]byte)} }

// read fills p from an offset and returns how much there was.
func (c *content) read(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for done := 0; done < len(p); {
		at := off + int64(done)
		part := p[done:min(len(p), done+int(block-at%block))]
		if b := c.blocks[at/block]; b != nil {
			copy(part, b[at%block:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(p)
}

func (c *content) write(p []byte, off int64) {
	for done := 0; done < len(p); {
		at := off + int64(done)
		b := c.blocks[at/block]
		if b == nil {
			b = new([block]byte)
			c.blocks[at/block] = b
		}
		done += copy(b[at%block:], p[done:])
	}
	c.size = max(c.size, off+int64(len(p)))
}

func (c *content) resize(size int64) {
	if size < c.size {
		for i, b := range c.blocks {
			switch {
			case i*block >= size:
				delete(c.blocks, i)
			case (i+1)*block > size:
				clear(b[size-i*block:])
			}
		}
	}
	c.size = size
}

func (c *content) clone() *content {
	copied := &content{size: c.size, blocks: make(map[int64]*[block]byte, len(c.blocks))}
	for i, b := range c.blocks {
		b := *b
		copied.blocks[i] = &b
	}
	return copied
}
