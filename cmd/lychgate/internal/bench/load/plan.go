// Package load is the process of the workers of "lychgate bench lock": it takes and gives back locks as a plan says, and
// writes down what it saw, for others to judge. The peer's workers, in .ci/etcd, speak the same protocol.
//
// A worker process reads one line of JSON on its standard input, a Plan. It prints the line "ready" when everything
// stands (connections, leases to hold, a queue), does its work, and prints one line of JSON, a Summary. Lines that begin
// with "progress " are for people.
package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
)

// Kinds of work.
const (
	Cycles   = "cycles"   // workers take and release locks in a loop
	Handover = "handover" // workers wait for one lock, which then passes from each to the next
	Fill     = "fill"     // leases are taken and kept until standard input ends
	Flow     = "flow"     // an open-loop mix of acquires, releases and renewals
)

// Plan is what a worker process is told. Durations are in nanoseconds.
type Plan struct {
	Kind      string        `json:"kind"`
	Addrs     []string      `json:"addrs"`
	Workers   int           `json:"workers"`
	Resources int           `json:"resources"` // that the workers share; 0: one for each
	Hold      int           `json:"hold"`      // leases that are held all the time
	Count     int           `json:"count"`     // leases to fill
	Prefix    string        `json:"prefix"`    // of resource names
	TTL       time.Duration `json:"ttl"`
	Ticketed  bool          `json:"ticketed"` // grants are signed; the peer knows no such thing
	Attempt   time.Duration `json:"attempt"`  // bounds one acquire; 0: nothing does
	WarmUp    time.Duration `json:"warm_up"`
	Duration  time.Duration `json:"duration"` // 0: until standard input ends
	Records   string        `json:"records"`  // file to write
	Mix       Mix           `json:"mix"`      // of Fill and Flow
}

// Summary is what it tells at the end.
type Summary struct {
	From  int64  `json:"from"` // of the measured time, Unix nanoseconds
	To    int64  `json:"to"`
	Lost  int    `json:"lost"` // leases that ended although their holder did not end them
	Fails int    `json:"fails"`
	Fail  string `json:"fail,omitempty"` // the first

	Violations []string           `json:"violations,omitempty"` // invariants that did not hold, the first few
	Operations int64              `json:"operations,omitempty"` // lease operations done in the measured time
	Latencies  map[string]Latency `json:"latencies,omitempty"`  // of Flow, by class, from the intended instants
	Wire       string             `json:"wire,omitempty"`       // how the calls travelled
	Missing    int                `json:"missing,omitempty"`    // leases that the population lacked when the measured time began
}

// Work does what the plan on in says, and tells on out. It returns when the work is done, when ctx ends, or, for work
// without an end of its own, when in ends.
// base is how clients of coordinator/client reach the cluster, but for its addresses; a flow goes to a cluster without TLS.
func Work(ctx context.Context, in io.Reader, out io.Writer, base client.Config) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with standard input, at the latest with the process
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	w := &worker{plan: p, base: base, stop: stop, out: out, ready: sync.OnceFunc(func() { fmt.Fprintln(out, "ready") })}
	if err := w.run(ctx); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(w.summary)
}

// worker is all the workers of a process.
type worker struct {
	plan  Plan
	base  client.Config
	stop  context.Context // when standard input has ended
	out   io.Writer
	ready func()

	mu      sync.Mutex
	records []Record
	summary Summary
}

func (w *worker) run(ctx context.Context) error {
	switch w.plan.Kind {
	case Cycles:
		return w.cycles(ctx)
	case Handover:
		return w.handover(ctx)
	case Fill, Flow:
		return w.flow(ctx)
	}
	return fmt.Errorf("unknown kind of work %q", w.plan.Kind)
}

// note takes the records of one worker and what went wrong with it.
func (w *worker) note(records []Record, fails int, first error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, records...)
	w.summary.Fails += fails
	if w.summary.Fail == "" && first != nil {
		w.summary.Fail = first.Error()
	}
}

var epoch = time.Now()

// Now is an instant in Unix nanoseconds, on a clock that goes on evenly within a process and that the processes of a
// machine share.
func Now() int64 { return At(time.Now()) }

// At is an instant of this process on the clock of Now.
func At(t time.Time) int64 { return epoch.UnixNano() + int64(t.Sub(epoch)) }
