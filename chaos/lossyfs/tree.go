package lossyfs

import (
	"maps"
	"syscall"
)

// inode is the number of a file or folder.
type inode uint64

// root is the folder that everything is in. It is FUSE's number for it, too.
const root inode = 1

// entry is a file, or a folder if it has names.
type entry struct {
	names   map[string]inode
	content *content
}

func (e *entry) isFolder() bool { return e.names != nil }

// tree is files and folders. What no folder names is kept, as an open file is.
type tree map[inode]*entry

func newTree() tree { return tree{root: {names: make(map[string]inode)}} }

func (t tree) clone() tree {
	copied := make(tree, len(t))
	for i, e := range t {
		if e.isFolder() {
			copied[i] = &entry{names: maps.Clone(e.names)}
		} else {
			copied[i] = &entry{content: e.content.clone()}
		}
	}
	return copied
}

// kind is what an op does.
type kind uint8

const (
	opWrite kind = iota
	opResize
	opSync // of a file's content
	opMake // a file, or a folder
	opRemove
	opRename
	opSyncFolder // of a folder's names
)

// op is one step of a journal: of the content of the file or the names of the folder that is its inode.
type op struct {
	kind   kind
	inode  inode
	off    int64 // of a write; the new size of a resize
	data   []byte
	name   string
	child  inode // that is made
	folder bool  // it is a folder
	target inode // the folder of the new name
	rename string
}

// apply does what the op does, as far as the tree has what it is about: a file whose folder never reached the disk is
// not there.
func (t tree) apply(o op) {
	switch o.kind {
	case opWrite:
		t.contentOf(o.inode).write(o.data, o.off)
	case opResize:
		t.contentOf(o.inode).resize(o.off)
	case opMake:
		t.namesOf(o.inode)[o.name] = o.child
		if o.folder {
			t.namesOf(o.child)
		} else {
			t.contentOf(o.child)
		}
	case opRemove:
		delete(t.namesOf(o.inode), o.name)
	case opRename:
		if from := t.namesOf(o.inode); from[o.name] != 0 {
			t.namesOf(o.target)[o.rename] = from[o.name]
			delete(from, o.name)
		}
	case opSync, opSyncFolder:
	}
}

func (t tree) contentOf(i inode) *content {
	if t[i] == nil {
		t[i] = &entry{content: newContent()}
	}
	return t[i].content
}

func (t tree) namesOf(i inode) map[string]inode {
	if t[i] == nil {
		t[i] = &entry{names: make(map[string]inode)}
	}
	return t[i].names
}

// check says why an op is refused, or 0.
func (t tree) check(o op) syscall.Errno {
	e := t[o.inode]
	if e == nil {
		return syscall.ENOENT
	}
	switch o.kind {
	case opWrite, opResize, opSync:
		if e.isFolder() {
			return syscall.EISDIR
		}
	case opMake:
		if !e.isFolder() {
			return syscall.ENOTDIR
		}
		if e.names[o.name] != 0 {
			return syscall.EEXIST
		}
	case opRemove:
		child := t[e.names[o.name]]
		switch {
		case child == nil:
			return syscall.ENOENT
		case o.folder && !child.isFolder():
			return syscall.ENOTDIR
		case !o.folder && child.isFolder():
			return syscall.EISDIR
		case len(child.names) > 0:
			return syscall.ENOTEMPTY
		}
	case opRename:
		if e.names[o.name] == 0 || t[o.target] == nil {
			return syscall.ENOENT
		}
		if old := t[t[o.target].names[o.rename]]; old != nil && len(old.names) > 0 {
			return syscall.ENOTEMPTY
		}
	case opSyncFolder:
		if !e.isFolder() {
			return syscall.ENOTDIR
		}
	}
	return 0
}
