package lock

import "math/bits"

// texts keeps byte strings in cells of some sizes, without a pointer and a header for each: a million of them are some
// thousand objects to the garbage collector. As a slab does, it shares its pages with snapshots and copies a page when it
// is first changed afterwards. A cell that was freed serves the next text of its size, but for large ones, which are the
// collector's.
type texts struct{ classes [textClasses]cells }

// text is the place of a text.
type text struct {
	cell  uint32
	class uint8 // of sizes
}

// The sizes of cells: multiples of 8 up to 128 bytes, then eight steps from one power of two to the next, up to 2 GiB.
const (
	smallClasses = 16
	textClasses  = smallClasses + 8*24
)

// classFor is the smallest class whose cells have n bytes; n is above 0.
func classFor(n int) uint8 {
	if n <= 8*smallClasses {
		return uint8((n - 1) / 8)
	}
	k := bits.Len(uint(n-1)) - 8
	return uint8(smallClasses + 8*k + (n-1-128<<k)/(16<<k))
}

// sizeOf is the size of a class's cells.
func sizeOf(class uint8) int {
	if class < smallClasses {
		return (int(class) + 1) * 8
	}
	k, step := (class-smallClasses)/8, int(class-smallClasses)%8
	return 128<<k + (step+1)*16<<k
}

// cellBits is the binary logarithm of the number of cells in a page of the class: a page has some kilobytes.
func cellBits(class uint8) uint32 {
	if class < smallClasses {
		return 7
	}
	return uint32(max(0, 6-int(class-smallClasses)/8))
}

// cells are those of one size.
type cells struct {
	pages [][]byte
	owned []bool // the page is in no snapshot and may be changed in place
	free  []uint32
	next  uint32 // the first cell that was never used
}

// add makes room for n bytes and returns it for writing. What it holds is old.
func (t *texts) add(n int) (text, []byte) {
	at := text{class: classFor(n)}
	c := &t.classes[at.class]
	if last := len(c.free) - 1; last >= 0 {
		at.cell = c.free[last]
		c.free = c.free[:last]
		if page := at.cell >> cellBits(at.class); c.pages[page] == nil {
			c.pages[page], c.owned[page] = make([]byte, sizeOf(at.class)), true
		}
	} else {
		at.cell = c.next
		c.next++
		if page := at.cell >> cellBits(at.class); int(page) == len(c.pages) {
			c.pages = append(c.pages, make([]byte, sizeOf(at.class)<<cellBits(at.class)))
			c.owned = append(c.owned, true)
		}
	}
	return at, t.edit(at)
}

// peek returns the text's cell, for a look at it. It is good until the next change of any text.
func (t *texts) peek(at text) []byte {
	shift, size := cellBits(at.class), sizeOf(at.class)
	page := t.classes[at.class].pages[at.cell>>shift]
	from := int(at.cell&(1<<shift-1)) * size
	return page[from : from+size]
}

// edit returns the cell for changing it. It is good until the next freeze.
func (t *texts) edit(at text) []byte {
	c := &t.classes[at.class]
	if page := at.cell >> cellBits(at.class); !c.owned[page] {
		c.pages[page] = append([]byte(nil), c.pages[page]...)
		c.owned[page] = true
	}
	return t.peek(at)
}

// remove frees the cell and clears its first byte. A page that is one cell goes.
func (t *texts) remove(at text) {
	c := &t.classes[at.class]
	c.free = append(c.free, at.cell)
	if cellBits(at.class) == 0 {
		c.pages[at.cell] = nil
		return
	}
	t.edit(at)[0] = 0
}

// freeze returns the texts for reading, untouched by later changes of t. Another goroutine may read them.
func (t *texts) freeze() *texts {
	frozen := new(texts)
	for i := range t.classes {
		if c := &t.classes[i]; len(c.pages) > 0 {
			clear(c.owned)
			frozen.classes[i] = cells{pages: append([][]byte(nil), c.pages...), next: c.next}
		}
	}
	return frozen
}

// pages walks the pages, with the sizes of their cells.
func (t *texts) pages(yield func(size int, page []byte) bool) {
	for class := range t.classes {
		for _, page := range t.classes[class].pages {
			if !yield(sizeOf(uint8(class)), page) {
				return
			}
		}
	}
}
