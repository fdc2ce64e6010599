package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// owner is a file beside a group's stores that says whose they are. A majority that remembers is all that keeps what
// was acknowledged, so a node must neither come back with another one's memory nor without its own: it could vote a
// second time in a term, or make a majority with those that never had an entry.
type owner struct {
	path string // empty: the stores are not files
	node string
}

// ownerOf is the file for a group's stores under dir.
func ownerOf(dir string, group uint16, node string) owner {
	return owner{filepath.Join(dir, fmt.Sprintf("group-%d.node", group)), node}
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
		"acknowledged. Put it back. If it is lost, and only while all other nodes are up and one of them leads, remove "+
		"everything in %s and start again", o.node, filepath.Dir(o.path))
}

// keyCurrentTerm is where the library keeps the term; it is there from the first configuration on.
var keyCurrentTerm = []byte("CurrentTerm")

// write makes the file if it is not there; whole or not at all, also after a power cut.
func (o owner) write() (err error) {
	if o.path == "" {
		return nil
	}
	if _, err := os.Stat(o.path); err == nil {
		return nil
	}
	dir := filepath.Dir(o.path)
	f, err := os.CreateTemp(dir, filepath.Base(o.path)+".new*")
	if err != nil {
		return fmt.Errorf("say whose the data is: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("say whose the data is: %w", err)
		}
	}()
	_, err = f.WriteString(o.node + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), o.path) // lost in a power cut, it is made at the next start
}

// checkMembers compares the members of the configuration with those in the log, which count.
func checkMembers(configured []Member, node *raft.Raft) error {
	future := node.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read the members: %w", err)
	}
	var ids, known []string
	for _, m := range configured {
		ids = append(ids, m.ID)
	}
	for _, s := range future.Configuration().Servers {
		known = append(known, string(s.ID))
	}
	slices.Sort(ids)
	slices.Sort(known)
	if slices.Equal(ids, known) {
		return nil
	}
	return fmt.Errorf("the configuration has the members %s, but the cluster has %s: addresses may change there, members may not",
		strings.Join(ids, ", "), strings.Join(known, ", "))
}
