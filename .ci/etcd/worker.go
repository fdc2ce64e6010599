package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// plan is what a worker process is told; durations are in nanoseconds.
type plan struct {
	Kind      string        `json:"kind"` // cycles, handover, fill
	Addrs     []string      `json:"addrs"`
	Workers   int           `json:"workers"`
	Resources int           `json:"resources"` // that the workers share; 0: one for each
	Hold      int           `json:"hold"`      // leases that are held all the time
	Count     int           `json:"count"`     // leases to fill
	Prefix    string        `json:"prefix"`
	TTL       time.Duration `json:"ttl"`
	Attempt   time.Duration `json:"attempt"` // bounds one acquire; 0: nothing does
	WarmUp    time.Duration `json:"warm_up"`
	Duration  time.Duration `json:"duration"` // 0: until standard input ends
	Records   string        `json:"records"`  // file to write
}

// summary is what it tells at the end.
type summary struct {
	From  int64  `json:"from"` // of the measured time, Unix nanoseconds
	To    int64  `json:"to"`
	Lost  int    `json:"lost"` // leases that ended although their holder did not end them
	Fails int    `json:"fails"`
	Fail  string `json:"fail,omitempty"` // the first
}

// work reads a plan, prints "ready" when everything stands, works, and prints the summary.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	c, err := dial(p.Addrs)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	w := &worker{plan: p, client: c, ended: ended, ready: sync.OnceFunc(func() { fmt.Fprintln(out, "ready") })}
	if err := w.run(ctx); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(w.summary)
}

func dial(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second})
}

type worker struct {
	plan   plan
	client *clientv3.Client
	ended  context.Context // when standard input has ended
	ready  func()

	mu      sync.Mutex
	records []record
	summary summary
}

func (w *worker) run(ctx context.Context) error {
	switch w.plan.Kind {
	case "cycles":
		return w.cycles(ctx)
	case "handover":
		return w.handover(ctx)
	case "fill":
		return w.fill(ctx)
	}
	return fmt.Errorf("unknown kind of work %q", w.plan.Kind)
}

// note takes the records of one worker and what went wrong.
func (w *worker) note(records []record, fails int, first error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, records...)
	w.summary.Fails += fails
	if w.summary.Fail == "" && first != nil {
		w.summary.Fail = first.Error()
	}
}

var start = time.Now()

// now is an instant on a clock that goes on evenly, and that other processes of the machine share.
func now() int64 { return start.UnixNano() + int64(time.Since(start)) }
