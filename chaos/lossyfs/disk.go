// Package lossyfs is a file system for tests that knows what a loss of power leaves. It keeps a journal of everything that is done to it,
// and for each place in the journal it can tell what may be on the disk if the machine stops there.
//
// What was synced is there. Of what was written to a file since its last sync, any part may be: each write or none of it, or some
// of its sectors of 512 bytes. Of the names of a folder (files made, removed, renamed) what came since its last sync is there up to some
// point, in order. A sync of a file says nothing of its name: POSIX promises no more, and some file systems keep no more.
//
// See "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014) for what programs get wrong here, and LazyFS for another such
// file system.
package lossyfs

import (
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Disk is a file system in memory with its journal. Its methods may be called by several goroutines. Mount shows it to processes.
type Disk struct {
	mu      sync.Mutex
	start   tree // before the journal
	live    tree
	journal []op
	last    inode
	off     bool
	end     int           // the length of the journal at which the power is cut; 0: it is not
	ended   chan struct{} // closed then
	fault   func(Change) syscall.Errno
}

// Change is what a fault may be about.
type Change struct {
	Sync  bool // of a file or a folder; otherwise it writes
	Bytes int  // that are written
}

// New is an empty disk.
func New() *Disk { return newDisk(newTree()) }

func newDisk(t tree) *Disk {
	d := &Disk{start: t, live: t.clone(), last: root, ended: make(chan struct{})}
	for i := range t {
		d.last = max(d.last, i)
	}
	return d
}

// Len is the length of the journal: a place in it.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.journal)
}

// Cut ends the power, once: from now on everything fails with EIO, and nothing is added to the journal, whose length is returned.
func (d *Disk) Cut() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutLocked()
	return len(d.journal)
}

// CutAt ends the power when the journal is that long, and closes the channel then.
func (d *Disk) CutAt(length int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end = length
	return d.ended
}

func (d *Disk) cutLocked() {
	if !d.off {
		d.off = true
		close(d.ended)
	}
}

// Fail has each change fail with what fault returns for it, until it is told nil; 0 is no fault.
func (d *Disk) Fail(fault func(Change) syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// Replay begins at the start of the journal as it is now.
func (d *Disk) Replay() *Replay {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Replay{journal: slices.Clip(d.journal), synced: d.start.clone(), pending: make(map[inode][]op)}
}

// do makes one change.
func (d *Disk) do(o op) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doLocked(o)
}

func (d *Disk) doLocked(o op) syscall.Errno {
	if d.off {
		return syscall.EIO
	}
	if errno := d.live.check(o); errno != 0 {
		return errno
	}
	if d.fault != nil {
		if errno := d.fault(Change{Sync: o.kind == opSync || o.kind == opSyncFolder, Bytes: len(o.data)}); errno != 0 {
			return errno
		}
	}
	d.live.apply(o)
	d.journal = append(d.journal, o)
	if len(d.journal) == d.end {
		d.cutLocked()
	}
	return 0
}

// make makes a file or a folder.
func (d *Disk) make(in inode, name string, folder bool) (inode, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last, d.doLocked(op{kind: opMake, inode: in, name: name, child: d.last, folder: folder})
}

// stat is what there is to say of an entry.
type stat struct {
	folder bool
	size   int64
	blocks int
}

func (d *Disk) stat(i inode) (stat, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statLocked(i)
}

func (d *Disk) statLocked(i inode) (stat, syscall.Errno) {
	e := d.live[i]
	switch {
	case d.off:
		return stat{}, syscall.EIO
	case e == nil:
		return stat{}, syscall.ENOENT
	case e.isFolder():
		return stat{folder: true}, 0
	}
	return stat{size: e.content.size, blocks: len(e.content.blocks)}, 0
}

func (d *Disk) lookUp(in inode, name string) (inode, stat, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.live[in]
	if e == nil || e.names[name] == 0 {
		return 0, stat{}, syscall.ENOENT
	}
	s, errno := d.statLocked(e.names[name])
	return e.names[name], s, errno
}

func (d *Disk) read(i inode, p []byte, off int64) (int, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.live[i]
	if d.off || e == nil || e.isFolder() {
		return 0, syscall.EIO
	}
	return e.content.read(p, off), 0
}

// named is one name of a folder.
type named struct {
	name  string
	inode inode
	stat  stat
}

func (d *Disk) list(i inode) ([]named, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.live[i]
	if d.off || e == nil || !e.isFolder() {
		return nil, syscall.EIO
	}
	var all []named
	for name, child := range e.names {
		s, _ := d.statLocked(child)
		all = append(all, named{name, child, s})
	}
	slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return all, 0
}
