package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A leader whose disk hangs goes on sending heartbeats, keeps its followers, and commits nothing; the library notices
// nothing. So a watchdog looks how long the calls of the stores take, and muzzles a node that is not able to take part: the
// others elect another leader, and its own callers are told that it does not lead. A call that ends well after all takes
// the muzzle off. After one that failed, the library is started anew on the stores, once the disk can be written.

// diskFault ends the life of a library whose stores have failed.
type diskFault struct{ err error }

func (f *diskFault) Error() string { return "the disk: " + f.err.Error() }
func (f *diskFault) Unwrap() error { return f.err }

// lasting reports whether what is on the disk cannot be trusted any more. After a failed write the kernel may show what
// never reached the disk, and a check would read that.
func (f *diskFault) lasting() bool { return errors.Is(f.err, syscall.EIO) }

const looksPerStall = 8 // how often the watchdog looks within the time that a call may take

// watch muzzles the node while its disk hangs, until ctx ends, or a call of the stores fails, which it returns.
func (g *Group) watch(ctx context.Context, from *origin, nudge func()) error {
	ticker := time.NewTicker(g.config.Timing.Disk / looksPerStall)
	defer ticker.Stop()
	hangs := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-from.disk.failed:
			fault := &diskFault{from.disk.err()}
			g.silence(from, fault, nudge)
			g.replica.detach()
			from.disk.letGo()
			return fault
		case <-ticker.C:
		}
		name, took, ok := from.disk.oldest()
		if stalled := ok && took >= g.config.Timing.Disk; stalled != hangs {
			hangs = stalled
			if hangs {
				g.silence(from, fmt.Errorf("the disk hangs: to %s takes longer than %s", name, g.config.Timing.Disk), nudge)
				continue
			}
			g.unsilence(from, nudge)
		}
	}
}

// silence takes the node out of the cluster.
func (g *Group) silence(from *origin, cause error, nudge func()) {
	from.muzzle.mute(cause)
	g.reasons.disk.say(cause.Error())
	g.config.Logger.Error("this node does not take part: its disk is not usable", "error", cause)
	nudge()
}

func (g *Group) unsilence(from *origin, nudge func()) {
	from.muzzle.unmute()
	g.reasons.disk.say("")
	g.config.Logger.Info("the disk works again, and this node takes part again")
	nudge()
}

const (
	firstProbe   = time.Second
	longestProbe = 30 * time.Second
	probeBytes   = segmentBytes + 4<<20 // as much room as the log needs to grow, and some
)

// awaitDisk waits until the disk can be written again, and reports false if ctx ends before that. One that gives
// input/output errors is not trusted again.
func (g *Group) awaitDisk(ctx context.Context, fault error, pause *time.Duration) bool {
	var broken *diskFault
	if errors.As(fault, &broken) && broken.lasting() {
		g.reasons.disk.say(fault.Error() + ". What is on it cannot be trusted. Replace the disk, or remove everything in the folder, " +
			"and start the node again: it catches up from the others")
		<-ctx.Done()
		return false
	}
	for {
		timer := time.NewTimer(*pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		*pause = min(2**pause, longestProbe)
		err := g.probe()
		if err == nil {
			return true
		}
		g.reasons.disk.say("the disk: " + err.Error())
	}
}

// probe writes to the disk.
func (g *Group) probe() error {
	if g.config.Stores != nil {
		return nil // the next start shows it
	}
	f, err := os.CreateTemp(groupDir(g.config.Dir, g.config.Group), "probe*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// groupDir is the folder of one group's stores.
func groupDir(dir string, group uint16) string {
	return filepath.Join(dir, fmt.Sprintf("group-%d", group))
}
