package group

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/chaos/lossyfs"
)

var (
	powerCuts   = flag.Int("power.cuts", 15, "how often the power is cut under a running node")
	powerImages = flag.Int("power.images", 6, "how many further images of a disk are looked at for each of them")
	powerSeed   = flag.Uint64("power.seed", 1, "seed of the losses")
)

// TestPowerCuts cuts the power of a node time and again, also while it starts after the last cut: whatever part of what was not synced is
// lost, what was acknowledged is there. The same is asked of other instants of each run, read as recovery reads a survivor's folder; and with
// a flipped bit, where the folder may be refused, but not read as something else.
func TestPowerCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(*powerSeed, 0))
	h, disk, seen := newPowerHistory(), lossyfs.New(), new(powerCounts)
	for run := range *powerCuts {
		before := h.clone()
		lines, place := h.run(t, disk, run, random, seen)
		for range *powerImages {
			before.image(t, disk, lines, random, seen)
		}
		if t.Failed() {
			return
		}
		r, loss := disk.Replay(), lossyfs.AnyLoss(random)
		r.To(place)
		disk = r.Cut(loss, random).Disk()
		seen.cuts[loss]++
	}
	t.Logf("seed %d: %d operations acknowledged; %+v", *powerSeed, h.acknowledged, *seen)
	if h.acknowledged < 20**powerCuts {
		t.Errorf("only %d operations were acknowledged in %d runs", h.acknowledged, *powerCuts)
	}
	if read := seen.whole; 2*read < *powerCuts**powerImages/2 {
		t.Errorf("only %d images could be read", read)
	}
}

// powerCounts is what a test has gone through.
type powerCounts struct {
	cuts                      [4]int // by loss
	blank, whole              int    // images: of a node that had acknowledged nothing, and of one whose state is right
	flips, refused, unchanged int    // images with a flipped bit
	full, broken              int    // disks that were full, or gave errors, for a while
}

// fail has the disk fail for a while from some step on, in every third run, and returns a channel that is closed then.
func (c *powerCounts) fail(disk *lossyfs.Disk, random *rand.Rand) <-chan struct{} {
	failed := make(chan struct{})
	if random.IntN(3) > 0 {
		return failed
	}
	errno, synced, begin, end := syscall.ENOSPC, false, random.IntN(200), 0
	if c.full++; random.IntN(2) == 0 {
		errno, synced = syscall.EIO, random.IntN(2) == 0
		c.full--
		c.broken++
	}
	end = begin + 1 + random.IntN(20)
	n := 0
	disk.Fail(func(change lossyfs.Change) syscall.Errno { // one at a time
		if change.Sync != synced {
			return 0
		}
		if n++; n <= begin || n > end {
			return 0
		}
		if n == begin+1 {
			close(failed)
		}
		return errno
	})
	return failed
}

// powerHistory is what was acknowledged, over all runs.
type powerHistory struct {
	states       map[string][]powerHolder // by resource: what it may be, the last acknowledged one first
	highest      uint64                   // token known
	before       uint64                   // of the runs before
	acknowledged int
}

func newPowerHistory() *powerHistory { return &powerHistory{states: make(map[string][]powerHolder)} }

func (h *powerHistory) clone() *powerHistory {
	copied := &powerHistory{states: make(map[string][]powerHolder, len(h.states)), highest: h.highest, before: h.before}
	for name, states := range h.states {
		copied.states[name] = slices.Clone(states)
	}
	return copied
}

// placed is a line and how long the journal was when it was read.
type placed struct {
	powerLine
	at int
}

// take adds a line to what is known.
func (h *powerHistory) take(l powerLine) {
	name := powerResource(l.Worker)
	switch {
	case l.Try != nil:
		h.states[name] = append(h.states[name], *l.Try)
	case l.Done != nil:
		h.states[name] = []powerHolder{*l.Done}
		h.highest = max(h.highest, l.Done.Token)
		h.acknowledged++
	}
}

// check compares what was found with what may be there. A client that was not answered has whatever token.
func (h *powerHistory) check(found map[string]powerHolder) error {
	for name, states := range h.states {
		if !slices.ContainsFunc(states, func(s powerHolder) bool {
			return s.Client == found[name].Client && (s.Token == 0 || s.Token == found[name].Token)
		}) {
			return fmt.Errorf("%s is held by %+v, and may be %+v", name, found[name], states)
		}
	}
	return nil
}

// adopt makes what a node found what is known.
func (h *powerHistory) adopt(found map[string]powerHolder) {
	for worker := range powerWorkers {
		h.states[powerResource(worker)] = []powerHolder{found[powerResource(worker)]}
		h.highest = max(h.highest, found[powerResource(worker)].Token)
	}
	h.before = h.highest
}

// run starts a node on the disk, cuts the power some steps later, and returns what was said meanwhile, and where the journal ended.
func (h *powerHistory) run(t *testing.T, disk *lossyfs.Disk, run int, random *rand.Rand, seen *powerCounts) ([]placed, int) {
	t.Helper()
	folder := t.TempDir()
	mounted, err := lossyfs.Mount(disk, folder)
	if err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	dark, failed := disk.CutAt(1+random.IntN(600)), seen.fail(disk, random)
	node := startPowerNode(t, powerSpec{Dir: folder, Run: run})
	var lines []placed
	read := make(chan error, 1)
	go func() {
		for {
			var l powerLine
			if err := node.lines.Decode(&l); err != nil {
				read <- err
				return
			}
			lines = append(lines, placed{l, disk.Len()})
		}
	}()
	ended := false
	select {
	case <-dark:
	case <-failed: // then it may do nothing more
		select {
		case <-dark:
		case <-time.After(time.Second):
		}
	case err := <-read:
		ended = true
		read <- err
	case <-time.After(time.Minute):
		t.Error("the node does nothing")
	}
	place := disk.Cut()
	_ = node.command.Process.Kill()
	<-read // everything that was said is in lines
	said := node.wait()
	if err := mounted.Unmount(); err != nil {
		t.Error(err)
	}
	select {
	case <-failed:
	default:
		if ended {
			t.Errorf("seed %d, run %d: the node ended: %s", *powerSeed, run, said)
		}
	}
	for _, l := range lines {
		h.follow(t, run, l.powerLine)
	}
	return lines, place
}

// follow checks a line and takes it.
func (h *powerHistory) follow(t *testing.T, run int, l powerLine) {
	t.Helper()
	switch {
	case l.Try == nil && l.Done == nil:
		if err := h.check(l.Found); err != nil {
			t.Errorf("seed %d, after cut %d: %v", *powerSeed, run, err)
		}
		h.adopt(l.Found)
		return
	case l.Done != nil && l.Done.Client != "" && l.Done.Token <= h.before:
		t.Errorf("seed %d, run %d: token %d after %d", *powerSeed, run, l.Done.Token, h.before)
	}
	h.take(l)
}

// image looks at what the disk may hold if the power goes at some instant of a run. h is what was known before the run.
func (h *powerHistory) image(t *testing.T, disk *lossyfs.Disk, lines []placed, random *rand.Rand, seen *powerCounts) {
	t.Helper()
	place, loss, flip := random.IntN(disk.Len()+1), lossyfs.AnyLoss(random), random.IntN(4) == 0
	known := h.clone()
	for _, l := range lines {
		switch {
		case l.at > place: // it may have happened before that was read
			known.maybe(l.powerLine)
		case l.Try == nil && l.Done == nil:
			known.adopt(l.Found)
		default:
			known.take(l.powerLine)
		}
	}
	r := disk.Replay()
	r.To(place)
	image, where := r.Cut(loss, random), ""
	if flip {
		where = image.Flip(random)
	}
	folder := t.TempDir()
	if err := image.Write(folder); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the test's own folder goes anyway
	state, err := Restoration{Dir: folder, Node: "n1", Peer: "localhost:1"}.survivor()
	if flip {
		seen.flips++
	}
	switch {
	case err == nil:
		err = known.check(powerFound(state.machine))
	case known.highest == 0:
		seen.blank++
		return
	case flip:
		seen.refused++
		return
	}
	if err != nil {
		t.Errorf("seed %d: step %d of %d, %s %s: %v", *powerSeed, place, disk.Len(), loss, where, err)
	}
	if seen.whole++; flip {
		seen.unchanged++
	}
}

// maybe adds what a line says to what may be.
func (h *powerHistory) maybe(l powerLine) {
	name := powerResource(l.Worker)
	switch {
	case l.Try != nil:
		h.states[name] = append(h.states[name], *l.Try)
	case l.Done != nil:
		h.states[name] = append(h.states[name], *l.Done)
	}
}

// powerNode is a node's process.
type powerNode struct {
	command *exec.Cmd
	in      io.Closer
	lines   *json.Decoder
	said    *strings.Builder
}

func startPowerNode(t *testing.T, spec powerSpec) *powerNode {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	n := &powerNode{command: exec.Command(os.Args[0]), said: new(strings.Builder)}
	n.command.Env = append(os.Environ(), powerEnv+"="+string(text))
	n.command.Stderr = n.said
	in, inErr := n.command.StdinPipe()
	out, outErr := n.command.StdoutPipe()
	if err := errors.Join(inErr, outErr, n.command.Start()); err != nil {
		t.Fatal(err)
	}
	n.in, n.lines = in, json.NewDecoder(bufio.NewReader(out))
	return n
}

// wait waits for the end of the process and returns the end of what it had said.
func (n *powerNode) wait() string {
	_ = n.command.Wait() // it says that it was killed
	_ = n.in.Close()
	said := n.said.String()
	return said[max(0, len(said)-2000):]
}
