package group

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// Restoration says from what a group is made anew, and where.
type Restoration struct {
	Dir   string // the node's folder
	Group uint16
	Node  string // this node, which becomes the only member; the others join it with empty folders
	Peer  string // its peer address

	// Backup is a save. Nil: the folder is a survivor's, and what it holds is taken.
	Backup io.Reader
	// Cluster refuses another cluster's state; empty: any.
	Cluster string
	// Known are incarnations of which tokens may be out there: of the floors in the stores, of other groups and backups.
	Known []uint32
	// Incarnation is the new one; 0: it is chosen by NextIncarnation.
	Incarnation uint32
}

// Restored says what was made.
type Restored struct {
	Cluster     string
	Incarnation uint32
	Index       uint64 // of the last entry of the new state
	Ended       int    // leases that were held, or waited for, and ended
	Aside       string // where a survivor's old folder is now; empty for a backup
}

// state is what a group is restored from.
type state struct {
	machine *lock.Machine
	index   uint64
	term    uint64
}

// Restore makes a group's stores anew, with this node as the only member and a state in which every lease and wait has ended and
// whose tokens are above all that were issued. No node of the group may be running, and none may start with its old folder afterwards.
//
// A backup goes into a folder that holds nothing of the group. A survivor's folder, one of a node of a cluster that has lost its
// majority, is set aside. Of it the newest snapshot and the whole log are taken, also what the node did not know to be committed: the
// lost majority may have acknowledged that. Where it had not, nothing is wrong either, because whatever it granted ends here.
//
// An error leaves the folder as it was. The state is synced to the disk when Restore returns.
func Restore(r Restoration) (Restored, error) {
	from, err := r.read()
	if err != nil {
		return Restored{}, err
	}
	result, err := r.recover(from)
	if err != nil {
		return Restored{}, err
	}
	fresh := groupDir(r.Dir, r.Group) + ".restored"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o700)); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	if err := r.write(fresh, from); err != nil {
		return Restored{}, errors.Join(fmt.Errorf("restore: write the new state: %w", err), os.RemoveAll(fresh))
	}
	result.Aside, err = r.install(fresh)
	if err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	return result, nil
}

func (r Restoration) read() (*state, error) {
	if r.Node == "" || r.Peer == "" || r.Dir == "" {
		return nil, errors.New("restore: no node, peer address or folder")
	}
	var from *state
	var err error
	if r.Backup == nil {
		from, err = r.survivor()
	} else {
		from, err = r.backup()
	}
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	info := from.machine.Info()
	switch {
	case !info.Initialised:
		return nil, errors.New("restore: there is no cluster in it")
	case r.Cluster != "" && info.Cluster != r.Cluster:
		return nil, fmt.Errorf("restore: it is of cluster %q and not of %q", info.Cluster, r.Cluster)
	}
	return from, nil
}

// backup reads a save.
func (r Restoration) backup() (*state, error) {
	if err := r.vacant(); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(r.Backup, 1<<16)
	saved, err := ReadSaved(in)
	if err != nil {
		return nil, err
	}
	if saved.Group != r.Group {
		return nil, fmt.Errorf("the backup is of group %d and not of group %d", saved.Group, r.Group)
	}
	machine, err := logpb.ReadSnapshot(in)
	if errors.Is(err, logpb.ErrCorrupt) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	info := machine.Info()
	if info.Index != saved.Index || info.Cluster != saved.Cluster || info.Incarnation != saved.Incarnation {
		return nil, fmt.Errorf("%w: its head is another backup's", ErrDamaged)
	}
	return &state{machine, saved.Index, saved.Term}, nil
}

// vacant refuses a folder in which the group has anything.
func (r Restoration) vacant() error {
	base := groupDir(r.Dir, r.Group)
	for _, path := range []string{base, base + ".node", base + ".rejoining", base + ".before-restore"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the folder is not empty: %s is there. Restore a backup into an empty one, or recover from what this one "+
				"holds", path)
		}
	}
	return nil
}

// survivor reads a node's folder: its newest snapshot, and its log behind that.
func (r Restoration) survivor() (_ *state, err error) {
	base := groupDir(r.Dir, r.Group)
	if _, err := os.Stat(filepath.Join(base, "log.db")); err != nil {
		if _, aside := os.Stat(base + ".before-restore"); aside == nil {
			return nil, fmt.Errorf("an earlier recovery was interrupted: rename %s.before-restore to %s, and try again", base, base)
		}
		return nil, fmt.Errorf("the folder is not a survivor's: %w", err)
	}
	if _, err := os.Stat(base + ".rejoining"); err == nil {
		return nil, errors.New("the node had lost its folder and had not caught up: it does not have what was acknowledged. Take another")
	}
	stores, err := openStores(r.Dir, r.Group, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stores.close()) }()
	if err := ownerOf(r.Dir, r.Group, r.Node).check(stores); err != nil {
		return nil, err
	}
	if err := checkWhole(stores); err != nil {
		return nil, err
	}
	from, err := newestSnapshot(stores.Snapshots)
	if err != nil {
		return nil, err
	}
	if err := from.replay(stores.Log); err != nil {
		return nil, err
	}
	term, err := stores.Stable.GetUint64(keyCurrentTerm)
	if err != nil {
		return nil, fmt.Errorf("read the term: %w", err)
	}
	from.term = max(from.term, term)
	return from, nil
}

// newestSnapshot is the state in the newest snapshot that can be read, or the state before the first entry.
func newestSnapshot(snapshots raft.SnapshotStore) (*state, error) {
	all, err := snapshots.List() // newest first
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	for _, s := range all {
		meta, content, err := snapshots.Open(s.ID)
		if err != nil {
			continue
		}
		machine, err := logpb.ReadSnapshot(content)
		_ = content.Close() // it was only read
		if errors.Is(err, logpb.ErrUnknown) {
			return nil, err
		}
		if err == nil {
			return &state{machine, meta.Index, meta.Term}, nil
		}
	}
	return &state{machine: lock.New()}, nil
}

// replay applies the log behind the snapshot to its end. A log of another history, which a deposed leader left behind a
// snapshot that was installed a moment ago, is not behind it.
func (s *state) replay(logs raft.LogStore) error {
	last, err := logs.LastIndex()
	if err != nil {
		return fmt.Errorf("read the end of the log: %w", err)
	}
	var entry raft.Log
	if err := logs.GetLog(s.index, &entry); err == nil && s.index > 0 && entry.Term != s.term {
		return nil
	}
	for index := s.index + 1; index <= last; index++ {
		if err := logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("read log entry %d of %d: %w", index, last, err)
		}
		if entry.Term < s.term {
			return nil
		}
		if err := s.apply(&entry); err != nil {
			return fmt.Errorf("log entry %d: %w", index, err)
		}
	}
	return nil
}

func (s *state) apply(log *raft.Log) error {
	s.index, s.term = log.Index, log.Term
	if log.Type != raft.LogCommand {
		return nil
	}
	entry, err := unseal(log)
	if err != nil {
		return err
	}
	if err := s.machine.Accepts(entry); err != nil {
		return err
	}
	s.machine.Apply(log.Index, entry)
	return nil
}

// recover begins the new life in the state.
func (r Restoration) recover(s *state) (Restored, error) {
	info := s.machine.Info()
	known := append([]uint32{info.Incarnation}, r.Known...)
	incarnation, err := r.Incarnation, error(nil)
	if incarnation == 0 {
		incarnation, err = NextIncarnation(known...)
	} else {
		err = checkIncarnation(incarnation, known...)
	}
	if err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	commands := []lock.Command{lock.Recover{Cluster: info.Cluster, Incarnation: incarnation}}
	for _, m := range s.machine.Members() {
		commands = append(commands, lock.DropMember{ID: m.ID}) // those that join say where they are
	}
	for _, k := range s.machine.Keys() { // what the last life signs, if any of it still runs, verifies no more
		commands = append(commands, lock.RetireKey{Node: k.Node, KeyID: k.KeyID})
	}
	s.index++
	s.term++ // it is nobody's entry
	results, _ := s.machine.Apply(s.index, lock.Entry{Now: info.Now, Commands: commands})
	for _, result := range results {
		if refused, ok := result.(lock.Refused); ok {
			return Restored{}, fmt.Errorf("restore: the state does not take the incarnation %d: %s", incarnation, refused.Reason)
		}
	}
	return Restored{Cluster: info.Cluster, Incarnation: incarnation, Index: s.index, Ended: info.Leases + info.Waiters}, nil
}

// write makes stores that hold the state in dir.
func (r Restoration) write(dir string, s *state) (err error) {
	stores, err := openStoresIn(dir, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.close()) }()
	if err := stores.Stable.SetUint64(keyCurrentTerm, s.term); err != nil {
		return err
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(r.Node), Address: raft.ServerAddress(r.Peer)}}}
	_, nobody := raft.NewInmemTransport("")
	sink, err := stores.Snapshots.Create(raft.SnapshotVersionMax, s.index, s.term, alone, s.index, nobody)
	if err != nil {
		return err
	}
	if err := logpb.WriteSnapshot(sink, s.machine.Snapshot()); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// install puts the new stores where the node looks for them, and sets what was there aside.
func (r Restoration) install(fresh string) (aside string, err error) {
	base := groupDir(r.Dir, r.Group)
	if r.Backup == nil {
		aside = base + ".before-restore"
		if _, err := os.Stat(aside); !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s is there from an earlier recovery: move it away", aside)
		}
		if err := os.Rename(base, aside); err != nil {
			return "", err
		}
	}
	if err := os.Rename(fresh, base); err != nil {
		return aside, err
	}
	if err := ownerOf(r.Dir, r.Group, r.Node).write(); err != nil {
		return aside, err
	}
	return aside, syncDir(r.Dir)
}
