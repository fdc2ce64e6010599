package coordinator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lychgate/lychgate/coordinator/internal/group"
)

// Recovery says how a cluster is made anew from what is left of it.
type Recovery struct {
	// Snapshot is a file that Cluster.Save streamed; empty: the node's own folder is a survivor's, and what it holds is taken.
	Snapshot string
	// Incarnation is that of the new life; 0: one is chosen, above everything known by a random step, so that two
	// restores of one snapshot take different ones.
	Incarnation uint32
	// Known are incarnations of which tokens may be out there: of the floors in the stores.
	Known []uint32
	// Pinned are the clusters that the stores which were asked belong to, by the names of the stores. If one is not the restored
	// cluster, Known tells nothing about it, and Recover refuses before it changes anything.
	Pinned map[string]string
}

// checkStores refuses what a store of another cluster would be asked for.
func (r Recovery) checkStores(cluster string) error {
	for _, store := range slices.Sorted(maps.Keys(r.Pinned)) {
		if pinned := r.Pinned[store]; pinned != cluster {
			return fmt.Errorf("the store %s belongs to the cluster %s, and what is restored is of %s: name the stores of this cluster only",
				store, pinned, cluster)
		}
	}
	return nil
}

// Recovered says what was made.
type Recovered struct {
	Cluster     string   `json:"cluster"`
	Node        string   `json:"node"`        // the only member now
	Before      uint32   `json:"before"`      // the highest incarnation that was known
	Incarnation uint32   `json:"incarnation"` // every token from now on is of it, and above all earlier ones
	Groups      int      `json:"groups"`
	Ended       int      `json:"ended"`           // leases and waits that ended with the old life
	Aside       []string `json:"aside,omitempty"` // folders of the survivor, as they were
}

// Recover makes the folder of the configured node that of a cluster with this node as its only member: from a snapshot, into a
// folder without any groups, or from what the folder itself holds. Every lease and wait ends, and tokens begin above all
// that were issued. The node must not run, and no other node of the cluster may ever again with its old folder.
//
// With an error nothing is left of an attempt to restore a snapshot. Of several groups of a survivor some may be recovered:
// the error says what to put back.
func Recover(config Config, how Recovery) (Recovered, error) {
	if err := config.Validate(); err != nil {
		return Recovered{}, err
	}
	config = config.resolved()
	self, _ := config.member(config.Node)
	base := group.Restoration{Dir: config.Dir, Node: config.Node, Peer: self.Peer, Known: how.Known}
	if how.Snapshot == "" {
		return recoverSurvivor(config, how, base)
	}
	return restoreSnapshot(config, how, base)
}

func restoreSnapshot(config Config, how Recovery, base group.Restoration) (_ Recovered, err error) {
	f, err := os.Open(how.Snapshot)
	if err != nil {
		return Recovered{}, err
	}
	defer f.Close()
	saved, err := CheckSnapshot(f) // all of it, before anything is written
	if err != nil {
		return Recovered{}, fmt.Errorf("%s: %w", how.Snapshot, err)
	}
	if len(saved.Groups) != config.Groups {
		return Recovered{}, fmt.Errorf("%s has %d groups, and the configuration says groups: %d; the number never changes",
			how.Snapshot, len(saved.Groups), config.Groups)
	}
	if err := how.checkStores(saved.Cluster); err != nil {
		return Recovered{}, err
	}
	if err := vacant(config.Dir); err != nil {
		return Recovered{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Recovered{}, err
	}
	base.Cluster = saved.Cluster
	out, err := begin(config, how, saved.Incarnation)
	if err != nil {
		return Recovered{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearGroups(config.Dir))
		}
	}()
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return Recovered{}, err
	}
	if err := group.WriteCount(config.Dir, config.Groups); err != nil {
		return Recovered{}, err
	}
	_, err = eachGroup(f, func(g SavedGroup, content io.Reader) error {
		one := base
		one.Group, one.Backup, one.Incarnation = g.Group, content, out.Incarnation
		return out.add(one)
	})
	return out, err
}

func recoverSurvivor(config Config, how Recovery, base group.Restoration) (Recovered, error) {
	if _, err := os.Stat(config.Dir); err != nil {
		return Recovered{}, fmt.Errorf("the folder is not a survivor's: %w", err)
	}
	if err := group.CheckCount(config.Dir, config.Groups); err != nil {
		return Recovered{}, err
	}
	var known []uint32
	for g := range config.Groups { // before anything is changed
		one := base
		one.Group = uint16(g)
		seen, err := one.Look()
		if err != nil {
			return Recovered{}, fmt.Errorf("group %d: %w", g, err)
		}
		known, base.Cluster = append(known, seen.Incarnation), seen.Cluster
	}
	if err := how.checkStores(base.Cluster); err != nil {
		return Recovered{}, err
	}
	out, err := begin(config, how, known...)
	if err != nil {
		return Recovered{}, err
	}
	for g := range config.Groups {
		one := base
		one.Group, one.Incarnation = uint16(g), out.Incarnation
		if err := out.add(one); err != nil {
			if len(out.Aside) > 0 {
				err = fmt.Errorf("%w; of the groups before, what was there is in %v: put it back before another attempt", err, out.Aside)
			}
			return Recovered{}, err
		}
	}
	return out, nil
}

// begin chooses the incarnation, the same for all groups.
func begin(config Config, how Recovery, known ...uint32) (Recovered, error) {
	known = append(known, how.Known...)
	out := Recovered{Node: config.Node, Groups: config.Groups}
	for _, k := range known {
		out.Before = max(out.Before, k)
	}
	var err error
	out.Incarnation, err = group.ChooseIncarnation(how.Incarnation, known...)
	return out, err
}

func (r *Recovered) add(one group.Restoration) error {
	restored, err := group.Restore(one)
	if err != nil {
		return fmt.Errorf("group %d: %w", one.Group, err)
	}
	r.Cluster = restored.Cluster
	r.Ended += restored.Ended
	if restored.Aside != "" {
		r.Aside = append(r.Aside, restored.Aside)
	}
	return nil
}

// vacant refuses a folder that has anything of a group.
func vacant(dir string) error {
	found, err := groupFiles(dir)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("the folder %s is not empty: %s is there. Restore into an empty one, or recover from what this one holds with "+
			"--survivor", dir, filepath.Base(found[0]))
	}
	return nil
}

// clearGroups takes away what a restore that failed has left, where nothing was before.
func clearGroups(dir string) error {
	found, err := groupFiles(dir)
	for _, path := range found {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// groupFiles are what the groups have in a node's folder. A ticket key and an audit log may be there, too, and stay.
func groupFiles(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "group") {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found, err
}
