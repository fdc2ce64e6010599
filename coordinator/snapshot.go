package coordinator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/archive"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Saved is what a snapshot file, as Cluster.Save streams it, says of the cluster that it was made of.
type Saved struct {
	Cluster     string       `json:"cluster"`
	Incarnation uint32       `json:"incarnation"`
	Version     uint32       `json:"version"` // of the cluster
	Node        string       `json:"node"`    // that wrote it
	SavedAt     time.Time    `json:"savedAt"` // by that node's wall clock
	Groups      []SavedGroup `json:"groups"`
}

// SavedGroup is a group in a snapshot file.
type SavedGroup struct {
	Group     uint16      `json:"group"`
	Index     uint64      `json:"index"` // of the last log entry in it
	Term      uint64      `json:"term"`
	Leases    int         `json:"leases"`
	Waiters   int         `json:"waiters"`
	LastToken lease.Token `json:"lastToken,string"`
}

// What is wrong with a snapshot file, for errors.Is.
var (
	ErrSnapshotCut     = archive.ErrCut
	ErrSnapshotDamaged = archive.ErrDamaged
	ErrSnapshotForeign = archive.ErrForeign
)

// CheckSnapshot reads a whole snapshot file and returns what it says: that it is whole, as it was written, has every group,
// and that this release can read the state of each. It needs memory for the largest group.
func CheckSnapshot(r io.Reader) (Saved, error) {
	return eachGroup(r, func(_ SavedGroup, content io.Reader) error {
		in := bufio.NewReader(content)
		if _, err := group.ReadSaved(in); err != nil {
			return err
		}
		_, err := logpb.ReadSnapshot(in)
		return err
	})
}

// SkimSnapshot is CheckSnapshot without looking at what the states consist of. It needs no memory.
func SkimSnapshot(r io.Reader) (Saved, error) {
	return eachGroup(r, func(SavedGroup, io.Reader) error { return nil })
}

// eachGroup reads an archive, and calls use with each group. What use did is worth nothing if there is an error.
func eachGroup(r io.Reader, use func(SavedGroup, io.Reader) error) (Saved, error) {
	in, err := archive.NewReader(r)
	if err != nil {
		return Saved{}, err
	}
	h := in.Header()
	out := Saved{Cluster: h.Cluster, Incarnation: h.Incarnation, Version: h.Version, Node: h.Node, SavedAt: h.SavedAt}
	for {
		g, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Saved{}, err
		}
		if int(g.Group) != len(out.Groups) {
			return Saved{}, fmt.Errorf("%w: group %d comes where group %d should", ErrSnapshotDamaged, g.Group, len(out.Groups))
		}
		saved := SavedGroup{
			Group: g.Group, Index: g.Index, Term: g.Term, Leases: g.Leases, Waiters: g.Waiters, LastToken: lease.Token(g.LastToken),
		}
		if err := use(saved, in); err != nil {
			return Saved{}, fmt.Errorf("group %d of the snapshot: %w", g.Group, err)
		}
		out.Groups = append(out.Groups, saved)
	}
	if len(out.Groups) != h.Groups {
		return Saved{}, fmt.Errorf("%w: it has %d of %d groups", ErrSnapshotDamaged, len(out.Groups), h.Groups)
	}
	return out, nil
}
