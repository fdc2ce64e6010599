package group

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// origin is what a node begins with.
type origin struct {
	stores *Stores
	owner  owner
	blank  bool // it has never had anything, as far as its folder says
	how    beginning
	proof  Proof   // for rejoins
	seam   *seam   // the log and the snapshots, in stores
	disk   *disk   // below them
	muzzle *muzzle // the transport
}

// look reads what the stores hold, and refuses what a node must not start on.
func (g *Group) look(stores *Stores) (*origin, error) {
	from := &origin{owner: g.owner(), disk: newDisk(g.instant)}
	var err error
	if from.stores, from.seam, err = stores.join(from.disk, g.config.noSeam || seeded.Is(seeded.SeamLeftOut)); err != nil {
		return nil, err
	}
	stores = from.stores
	if err := from.owner.check(stores); err != nil {
		return nil, err
	}
	if err := checkWhole(stores); err != nil {
		return nil, err
	}
	empty, err := isBlank(stores)
	if err != nil {
		return nil, err
	}
	own, err := lifeIn(stores)
	if err != nil {
		return nil, err
	}
	g.replica.life.Store(uint32(own))
	lost, err := from.owner.rejoining()
	if err != nil {
		return nil, err
	}
	from.blank = empty && !lost
	switch {
	case !empty && !lost:
		from.how = resumes
	case g.config.Peers != nil:
		// The others are asked.
	case lost:
		return nil, errors.New("the node was catching up without a vote, and has nobody to ask how far")
	default:
		from.how = creates
	}
	return from, nil
}

// settle finds how the node begins, if its stores do not say. False: ctx ended before that was clear.
func (g *Group) settle(ctx context.Context, from *origin) bool {
	if from.how == undecided {
		if from.blank {
			g.memory.Store(int32(blank))
		} else {
			g.memory.Store(int32(remembers)) // of a cluster that lives, although it has no vote there
		}
		from.how, from.proof = g.findBeginning(ctx, from.blank)
	}
	if from.how == undecided {
		return false
	}
	g.memory.Store(int32(remembers))
	return true
}

// prepare makes the stores, the muzzle and what is said of the node fit how it begins.
func (g *Group) prepare(from *origin, config *raft.Config) error {
	switch from.how {
	case creates:
		if err := bootstrap(from.stores, config, from.muzzle, g.config.Members); err != nil {
			return err
		}
		from.muzzle.takeOff()
		g.pend("")
	case rejoins:
		if err := from.owner.beginRejoining(); err != nil {
			return err
		}
		g.replica.life.Store(uint32(lifeOf(from.proof.Incarnation))) // before a node of another one is let in
		from.muzzle.admit(from.proof.Term)
		g.pend(catchingUp)
	case resumes:
		from.muzzle.takeOff()
	case undecided:
	}
	return from.owner.write()
}

const lookEvery = 20 * time.Millisecond

// catchUp waits until the replica has all that was acknowledged before this node started, and gives it its vote. It
// returns nil if ctx ends before.
func (g *Group) catchUp(ctx context.Context, node *raft.Raft, from *origin) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for g.appliedIndex() < from.proof.Index {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
	g.compareMembers(node)
	if err := from.owner.endRejoining(); err != nil {
		return err
	}
	from.muzzle.takeOff()
	g.pend("")
	g.config.Logger.Info("caught up: this node votes again", "index", from.proof.Index, "term", from.proof.Term)
	return nil
}

// appliedIndex is how far this replica's state goes.
func (g *Group) appliedIndex() (index uint64) {
	g.replica.view(func(m *lock.Machine) { index = m.Info().Index })
	return index
}
