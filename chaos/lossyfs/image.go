package lossyfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// Replay goes through a journal. It is used by one goroutine.
type Replay struct {
	journal []op
	at      int
	synced  tree           // what is on the disk for sure
	pending map[inode][]op // by what has to be synced for it, in order
}

// To goes on to a place of the journal, which is not before the present one.
func (r *Replay) To(place int) {
	for ; r.at < min(place, len(r.journal)); r.at++ {
		r.step(r.journal[r.at])
	}
}

func (r *Replay) step(o op) {
	switch o.kind {
	case opSync, opSyncFolder:
		for _, p := range r.pending[o.inode] {
			r.synced.apply(p)
		}
		delete(r.pending, o.inode)
	case opRename:
		r.pending[o.target] = append(r.pending[o.target], o)
	case opWrite, opResize, opMake, opRemove:
		r.pending[o.inode] = append(r.pending[o.inode], o)
	}
}

// Loss is how much of what was not synced is lost.
type Loss uint8

// The losses.
const (
	LossOfAll  Loss = iota // everything
	LossOfNone             // nothing: the process was killed, the machine goes on
	LossOfEnd              // of each file and folder what came after some point; the write there is torn
	LossOfSome             // of files any writes and any sectors of them, of folders what came after some point
	losses
)

func (l Loss) String() string {
	return [...]string{"all that was not synced is lost", "nothing is lost", "the end is lost", "some of it is lost"}[l]
}

// AnyLoss draws one.
func AnyLoss(random *rand.Rand) Loss { return Loss(random.UintN(uint(losses))) }

// Cut is what is on the disk if the power goes here. The draws decide what of the rest is.
func (r *Replay) Cut(loss Loss, random *rand.Rand) *Image {
	image := &Image{tree: r.synced.clone()}
	inodes := make([]inode, 0, len(r.pending))
	for i := range r.pending {
		inodes = append(inodes, i)
	}
	slices.Sort(inodes) // the same draws give the same image
	for _, i := range inodes {
		for _, o := range survivors(r.pending[i], loss, random) {
			image.tree.apply(o)
		}
	}
	return image
}

// survivors is what is left of the pending steps of a file or a folder.
func survivors(pending []op, loss Loss, random *rand.Rand) []op {
	switch loss {
	case LossOfAll:
		return nil
	case LossOfNone:
		return pending
	case LossOfEnd, LossOfSome, losses:
	}
	data := pending[0].kind == opWrite || pending[0].kind == opResize
	if loss == LossOfEnd || !data {
		n := random.IntN(len(pending) + 1)
		left := slices.Clone(pending[:n])
		if n < len(pending) && pending[n].kind == opWrite {
			left = append(left, torn(pending[n], random)...)
		}
		return left
	}
	var left []op
	for _, o := range pending {
		switch random.IntN(3) {
		case 0:
			left = append(left, o)
		case 1:
			left = append(left, torn(o, random)...)
		}
	}
	return left
}

// torn is a write of which only some sectors are there.
func torn(o op, random *rand.Rand) []op {
	var left []op
	for from := 0; from < len(o.data); {
		at := o.off + int64(from)
		to := min(len(o.data), from+int(sector-at%sector))
		if random.IntN(2) == 0 {
			left = append(left, op{kind: opWrite, inode: o.inode, off: at, data: o.data[from:to]})
		}
		from = to
	}
	return left
}

// Image is what is on a disk.
type Image struct{ tree tree }

// Disk is a disk with the image on it, and an empty journal.
func (i *Image) Disk() *Disk { return newDisk(i.tree.clone()) }

// Write writes the image into an empty folder of a real file system.
func (i *Image) Write(folder string) error { return i.write(root, folder) }

func (i *Image) write(in inode, path string) error {
	for name, child := range i.tree[in].names {
		e, at := i.tree[child], filepath.Join(path, name)
		if e.isFolder() {
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
			if err := i.write(child, at); err != nil {
				return err
			}
			continue
		}
		if err := e.content.save(at); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) save(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if err := f.Truncate(c.size); err != nil {
		return err
	}
	for at, b := range c.blocks {
		if _, err := f.WriteAt(b[:min(block, c.size-at*block)], at*block); err != nil {
			return err
		}
	}
	return nil
}

// Flip changes one bit of what was written to a file, and says where; "" if there is no file that has anything.
func (i *Image) Flip(random *rand.Rand) string {
	type place struct {
		path  string
		bytes *[block]byte
		at    int64
		size  int64
	}
	var places []place
	i.walk(root, "", func(path string, c *content) {
		for at, b := range c.blocks {
			places = append(places, place{path, b, at * block, min(block, c.size-at*block)})
		}
	})
	if len(places) == 0 {
		return ""
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.path != b.path {
			return strings.Compare(a.path, b.path)
		}
		return int(a.at - b.at)
	})
	p := places[random.IntN(len(places))]
	at, bit := random.Int64N(p.size), random.UintN(8)
	p.bytes[at] ^= 1 << bit
	return fmt.Sprintf("bit %d of byte %d of %s", bit, p.at+at, p.path)
}

func (i *Image) walk(in inode, path string, visit func(path string, c *content)) {
	for name, child := range i.tree[in].names {
		if e := i.tree[child]; e.isFolder() {
			i.walk(child, filepath.Join(path, name), visit)
		} else {
			visit(filepath.Join(path, name), e.content)
		}
	}
}
