// Package explore visits the states of a system, the nearest to its beginning first, and has each step judged. What
// the system is, what can happen in it and what is wrong is the system's own affair: this package knows no locks.
//
// A state is kept as 16 bytes that tell whether it was seen, and as the step that led to it from another state. To go
// on from a state its steps are taken again from the beginning, so nothing of the system itself has to be stored.
package explore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Step is one thing that can happen in a state. What the numbers mean is the system's own affair.
type Step uint16

// Key tells states apart. Two states with one key must have the same future; it is a hash of all that decides it.
type Key [16]byte

// System is what is explored. It is used by one goroutine.
type System interface {
	// Reset goes to the first state. Steps taken from here to Keep are repetitions: no situation is counted.
	Reset()
	// Keep remembers the state, for Back. Back may come any number of times.
	Keep()
	// Back returns to the state that was kept.
	Back()
	// Steps appends what can happen in this state, always in the same order.
	Steps(room []Step) []Step
	// Take takes one of them. The error says what is wrong with it: then the exploration is over.
	Take(s Step) error
	// Key is that of this state.
	Key() Key
	// Tell says in words what taking the step will be, in this state.
	Tell(s Step) string
	// Situations counts what was met since the system was made, by name.
	Situations() map[string]int
}

// Config says what is explored and how far.
type Config struct {
	Name    string
	System  func() System // makes one for each worker
	States  int           // enough; 0: all there are
	Workers int           // 0: one

	Progress func(*Report) // called every few seconds and never at once; nil: nobody looks
	Every    time.Duration // 0: 5 s
}

const (
	usualPause = 5 * time.Second
	chunk      = 256 // states that a worker takes at a time
	maxStates  = 1<<32 - 1
)

// ErrTwoStates says that steps which were taken from the beginning led elsewhere than when the state was found, by the last of
// them from the state that was kept before it.
var ErrTwoStates = errors.New("the same steps lead to two states")

// node is how a state was reached.
type node struct {
	parent uint32
	step   Step
}

// explorer is one exploration.
type explorer struct {
	Config
	seen    *visited
	nodes   []node // by the number of the state; those of the next level are with the workers
	level   []Key  // the states that are gone on from now
	first   int    // the number of the first of them
	next    atomic.Int64
	states  atomic.Int64
	steps   atomic.Int64
	stop    atomic.Bool
	begun   time.Time
	levels  []int
	mu      sync.Mutex
	failure *Failure
	at      int // the number of the state that failed
}

// Run explores until there are enough states, none is left, or a step is wrong.
func Run(c Config) *Report {
	x := &explorer{Config: c, seen: newVisited(), begun: time.Now(), at: maxStates}
	workers := make([]*worker, max(1, c.Workers))
	for i := range workers {
		workers[i] = &worker{explorer: x, system: c.System()}
	}
	workers[0].begin()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { x.watch(done) })
	for len(x.level) > 0 && !x.stop.Load() {
		x.expand(workers)
	}
	close(done)
	watching.Wait()
	return x.report(workers)
}

// watch tells how far the exploration is.
func (x *explorer) watch(done chan struct{}) {
	if x.Progress == nil {
		return
	}
	pause := x.Every
	if pause == 0 {
		pause = usualPause
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			x.mu.Lock()
			r := x.figures()
			x.mu.Unlock()
			x.Progress(r)
		}
	}
}

// expand goes on from every state of the level, and makes what is found the next level.
func (x *explorer) expand(workers []*worker) {
	x.next.Store(0)
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.run)
	}
	all.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.first += len(x.level)
	x.level = x.level[:0:0]
	for _, w := range workers {
		x.level = append(x.level, w.found...)
		x.nodes = append(x.nodes, w.nodes...)
		w.found, w.nodes = nil, nil
	}
	if len(x.level) > 0 {
		x.levels = append(x.levels, len(x.level))
	}
}

// fail keeps the failure of the state with the lowest number, so that it is the same with any number of workers.
func (x *explorer) fail(at int, f *Failure) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at < x.at {
		x.at, x.failure = at, f
	}
	x.stop.Store(true)
}

// path lists the steps that lead to a state.
func (x *explorer) path(number int) []Step {
	var back []Step
	for number > 0 {
		n := x.nodes[number]
		back = append(back, n.step)
		number = int(n.parent)
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back
}

// worker goes on from states with a system of its own.
type worker struct {
	*explorer
	system System
	room   []Step
	found  []Key
	nodes  []node
}

// begin makes the first state the first level.
func (w *worker) begin() {
	w.system.Reset()
	w.system.Keep()
	key := w.system.Key()
	w.seen.add(key)
	w.states.Add(1)
	w.explorer.nodes, w.level, w.levels = []node{{}}, []Key{key}, []int{1}
}

func (w *worker) run() {
	for !w.stop.Load() {
		end := int(w.next.Add(chunk))
		from := end - chunk
		if from >= len(w.level) {
			return
		}
		for i := from; i < min(end, len(w.level)) && !w.stop.Load(); i++ {
			if f := w.goOn(i); f != nil {
				w.fail(w.first+i, f)
			}
		}
	}
}

// goOn takes every step from a state of the level.
func (w *worker) goOn(i int) *Failure {
	number := w.first + i
	path := w.path(number)
	if f := w.arrive(path, w.level[i]); f != nil {
		return f
	}
	w.room = w.system.Steps(w.room[:0])
	for _, s := range w.room {
		w.system.Back()
		if err := w.system.Take(s); err != nil {
			return &Failure{Path: append(path, s), Err: err}
		}
		if key := w.system.Key(); w.seen.add(key) {
			w.found = append(w.found, key)
			w.nodes = append(w.nodes, node{uint32(number), s})
			if n := w.states.Add(1); w.States > 0 && n >= int64(w.States) || n >= maxStates {
				w.stop.Store(true)
			}
		}
		w.steps.Add(1)
	}
	return nil
}

// arrive takes the steps to a state once more. It must be the state that was found.
func (w *worker) arrive(path []Step, want Key) *Failure {
	w.system.Reset()
	for i, s := range path {
		if err := w.system.Take(s); err != nil {
			return &Failure{Path: path[:i+1], Err: fmt.Errorf("at the second time: %w", err)}
		}
	}
	if got := w.system.Key(); got != want {
		return &Failure{Path: path, Err: fmt.Errorf("%w, %x and %x", ErrTwoStates, want[:4], got[:4])}
	}
	w.system.Keep()
	return nil
}
