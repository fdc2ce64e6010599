package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// owner is a file beside a group's stores that says whose they are. A majority that remembers is all that keeps what
// was acknowledged, so a node must neither come back with another one's memory nor without its own: it could vote a
// second time in a term, or make a majority with those that never had an entry.
type owner struct {
	path string // empty: the stores are not files
	node string
	lost string // path of another file, which is there while the node catches up without a vote
}

// ownerOf is the file for a group's stores under dir.
func ownerOf(dir string, group uint16, node string) owner {
	base := filepath.Join(dir, fmt.Sprintf("group-%d.", group))
	return owner{path: base + "node", node: node, lost: base + "rejoining"}
}

// check refuses stores that are another node's, or have lost what this node promised.
func (o owner) check(stores *Stores) error {
	if o.path == "" {
		return nil
	}
	text, err := os.ReadFile(o.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("whose the data is: %w", err)
	}
	marked := err == nil
	if name := strings.TrimSpace(string(text)); marked && name != o.node {
		return fmt.Errorf("the data belongs to node %q and not to %q (%s)", name, o.node, o.path)
	}
	if lost, err := o.rejoining(); lost || err != nil {
		return err // it promised nothing since
	}
	term, err := stores.Stable.GetUint64(keyCurrentTerm)
	if err == nil && term > 0 {
		return nil
	}
	snapshots, err := stores.Snapshots.List()
	if err != nil {
		return fmt.Errorf("look into the stores: %w", err)
	}
	if !marked && len(snapshots) == 0 {
		return nil // the first start
	}
	return fmt.Errorf("the log of node %q is gone: started without it, the node could vote twice or help to lose what was "+
		"acknowledged. Put it back. If it is lost, remove everything in %s and start again: the node then catches up from "+
		"the others before it votes", o.node, filepath.Dir(o.path))
}

// keyCurrentTerm is where the library keeps the term; it is there from the first configuration on.
var keyCurrentTerm = []byte("CurrentTerm")

// write makes the file if it is not there.
func (o owner) write() error {
	if o.path == "" {
		return nil
	}
	if _, err := os.Stat(o.path); err == nil {
		return nil
	}
	if err := writeWhole(o.path, o.node+"\n"); err != nil { // lost in a power cut, it is made at the next start
		return fmt.Errorf("say whose the data is: %w", err)
	}
	return nil
}

// rejoining reports whether the node was catching up without a vote when it stopped.
func (o owner) rejoining() (bool, error) {
	if o.lost == "" {
		return false, nil
	}
	_, err := os.Stat(o.lost)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// beginRejoining says on the disk, before anything else is there, that the node is without a vote.
func (o owner) beginRejoining() error {
	if o.lost == "" {
		return nil
	}
	err := writeWhole(o.lost, o.node+"\n")
	if err == nil {
		err = syncDir(filepath.Dir(o.lost))
	}
	if err != nil {
		return fmt.Errorf("note that the node is without a vote: %w", err)
	}
	return nil
}

// endRejoining takes that back.
func (o owner) endRejoining() error {
	if o.lost == "" {
		return nil
	}
	err := os.Remove(o.lost)
	if err == nil {
		err = syncDir(filepath.Dir(o.lost))
	}
	if err != nil {
		return fmt.Errorf("note that the node has its vote again: %w", err)
	}
	return nil
}

// writeWhole makes a file whole or not at all, also in a power cut.
func writeWhole(path, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	if seeded.Is(seeded.DirectoryNotSynced) {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
