// Package simulate runs a coordinator group, its clients and the stores behind it in one goroutine, from one seed, by a
// perfect clock that jumps from event to event. The lock machine and its snapshots are the real ones, and so is the lease
// clock, which comes in; consensus is modelled by what it promises: what was committed stays, of what was not a beginning
// may outlive its leader, and the callers of a deposed leader do not learn which. Equal seeds give equal runs.
package simulate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Clock is the lease clock of one term; see coordinator/DESIGN.md.
type Clock interface {
	Stamp(at time.Duration, committed lock.LeaseTime) lock.LeaseTime
}

// Config is one run.
type Config struct {
	Seed    uint64
	Span    time.Duration // of the phase with faults
	Without Faults        // that the seed may have drawn
	Clients int           // at most; 0: as many as the seed drew
	Tell    bool          // keep the story

	// Clock begins a term; Limit is how far a stamp may be ahead of the last committed one.
	Clock func(state lock.LeaseTime, at, limit time.Duration) Clock
	Limit func(minTTL time.Duration) time.Duration
}

// Outcome is what a run did.
type Outcome struct {
	Err        error
	Failed     time.Duration // when
	Hash       uint64        // of everything that happened, in its order
	Span       time.Duration // simulated
	Events     int
	Operations int // of clients, answered
	Entries    int // of the log
	Faults     map[string]int
	Met        map[string]int
	Kinds      Faults   // that the seed drew
	Clients    int      // that the seed drew
	Story      []string // the last of it
}

// world is one run.
type world struct {
	cfg     Config
	drawn   drawn
	rng     *rand.Rand
	now     time.Duration // by the perfect clock
	queue   events
	seq     uint64
	quiet   bool // the faults are over
	trace   uint64
	out     Outcome
	cluster cluster
	clients []*client
	stores  []*store
	judge   *judge
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// events is a heap by time, and by the order in which they were set.
type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}

// Run runs one seed to its end or to its first violation.
func Run(cfg Config) Outcome {
	w := &world{cfg: cfg, drawn: draw(cfg), rng: rand.New(rand.NewPCG(cfg.Seed, 2))}
	w.out.Faults, w.out.Met = make(map[string]int), make(map[string]int)
	w.out.Kinds, w.out.Clients = w.drawn.kinds, w.drawn.clients
	w.judge = newJudge(w)
	w.begin()
	w.until(cfg.Span)
	w.heal()
	end := cfg.Span + w.drawn.config.MaxWait + w.drawn.config.RetryWindow + 3*(w.drawn.config.MaxTTL+longestElection)
	w.until(end)
	if w.out.Err == nil {
		w.fail(w.settled())
	}
	w.out.Span, w.out.Hash = w.now, w.trace
	return w.out
}

func (w *world) begin() {
	w.cluster.begin(w)
	for i := range resources {
		w.stores = append(w.stores, &store{world: w, name: resources[i]})
	}
	for i := range w.drawn.clients {
		c := newClient(w, i)
		w.clients = append(w.clients, c)
		c.rest()
	}
	w.beginFaults()
}

// until runs what happens before an instant.
func (w *world) until(end time.Duration) {
	for w.out.Err == nil && len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.out.Events++
		e.do()
	}
	if w.out.Err == nil {
		w.now = end
	}
}

// after has something happen later.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{at: w.now + max(d, 0), seq: w.seq, do: do})
}

// fail ends the run.
func (w *world) fail(err error) {
	if err != nil && w.out.Err == nil {
		w.out.Err, w.out.Failed = err, w.now
	}
}

// note adds to the trace, and to the story if one is told.
func (w *world) note(kind string, numbers ...uint64) {
	w.mix(uint64(w.now))
	for i := range len(kind) {
		w.mix(uint64(kind[i]))
	}
	for _, n := range numbers {
		w.mix(n)
	}
}

// mix takes a number into the trace (the finaliser of splitmix64).
func (w *world) mix(n uint64) {
	x := w.trace ^ n + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	w.trace = x ^ x>>31
}

const longStory = 60

func (w *world) tell(format string, args ...any) {
	if !w.cfg.Tell {
		return
	}
	if len(w.out.Story) == longStory {
		w.out.Story = w.out.Story[1:]
	}
	w.out.Story = append(w.out.Story, fmt.Sprintf("%12v  ", w.now.Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (w *world) meet(name string) { w.out.Met[name]++ }

// chance is true that often in a thousand.
func (w *world) chance(perMille int) bool { return w.rng.IntN(1000) < perMille }

// between draws a duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// about draws a duration around a mean, mostly shorter, sometimes much longer.
func (w *world) about(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}
