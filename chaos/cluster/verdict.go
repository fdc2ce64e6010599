//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/chaos/history"
	"github.com/lychgate/lychgate/chaos/soak/judge"
)

// worker is a client process.
type worker struct {
	*host
	service
	input io.Closer
}

// record is what a run has come to.
type record struct {
	mu       sync.Mutex
	timeline []string
	faults   map[string]int
	errors   []error
	steps    []history.Step
	writes   judge.History
	codes    map[string]int
	lost     int64 // updates of registers
}

func newRecord() *record {
	return &record{faults: map[string]int{}, codes: map[string]int{}, writes: judge.History{Attempts: map[string]judge.Attempt{}}}
}

func (r *record) fault(at time.Duration, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[name]++
	acked, _ := r.outcomes()
	r.timeline = append(r.timeline, fmt.Sprintf("%7.1fs %s (%d steps, %d writes so far)", at.Seconds(), name, len(r.steps), acked))
}

// refused takes a fault back that did not come about.
func (r *record) refused(name, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[name]--
	r.faults[name+" (refused)"]++
	r.timeline = append(r.timeline, "         "+strings.TrimSpace(why))
}

func (r *record) broken(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, err)
}

// outcomes counts; the caller holds mu.
func (r *record) outcomes() (acked, unknown int) {
	for _, a := range r.writes.Attempts {
		switch a.Outcome {
		case judge.Acknowledged:
			acked++
		case judge.Unknown:
			unknown++
		case judge.Refused:
		}
	}
	return acked, unknown
}

func (r *record) acked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.outcomes()
	return n
}

// take reads what a client tells, up to its end.
func (r *record) take(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var t told
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			r.broken(fmt.Errorf("a client says %q: %w", lines.Bytes(), err))
			return
		}
		r.mu.Lock()
		if t.Step != nil {
			r.steps = append(r.steps, *t.Step)
		}
		if t.Attempt != nil {
			r.writes.Attempts[t.Op] = *t.Attempt
		}
		if t.Contact != nil {
			r.writes.Contacts = append(r.writes.Contacts, *t.Contact)
		}
		if t.Code != "" {
			r.codes[t.Code]++
		}
		r.mu.Unlock()
	}
}

func (s *stage) startClient(number int, c *worker) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := orders{Name: c.host.name, Number: number, Seed: s.dice.Uint64(), Coordinators: s.addresses(7600), Unfenced: s.options.noFence}
	for _, p := range s.proxies {
		o.Databases = append(o.Databases, p.address+":7632")
	}
	if o.Unfenced {
		o.Databases = []string{fmt.Sprintf("%s:%d", s.db.address, s.postgres.Port())}
	}
	cmd := c.host.command(self, "client")
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return err
	}
	exited := make(chan struct{})
	c.service = service{host: c.host, cmd: cmd, exited: exited}
	c.input = in
	go func() {
		defer close(exited)
		s.record.take(out)
		_ = cmd.Wait() // all that it had to say was said
	}()
	return json.NewEncoder(in).Encode(o)
}

// lastBound is three times a TTL and an election, after the longest wait.
const lastBound = 15*time.Second + 3*(ttl+2*time.Second)

// judge lets all come to rest and says what it was worth.
func (s *stage) judge(ctx context.Context) error {
	for _, n := range s.nodes {
		s.note(s.ready(ctx, n, 7601))
	}
	for _, p := range s.proxies {
		s.note(s.ready(ctx, p, 7610))
	}
	before := s.record.acked()
	for deadline := time.Now().Add(lastBound); s.record.acked() < before+4 && time.Now().Before(deadline); {
		pause(ctx, 100*time.Millisecond)
	}
	if s.record.acked() < before+4 {
		s.note(errors.New("after all was healed nobody could write"))
	}
	for _, c := range s.clients {
		_ = c.input.Close() // it ends now
	}
	late := time.After(lastBound)
	for _, c := range s.clients {
		select {
		case <-c.exited:
		case <-late:
			s.note(fmt.Errorf("%s: somebody was not answered within %v", c.host.name, lastBound))
			c.kill()
		}
	}
	s.note(s.readTable(ctx))
	return s.verdict()
}

func (s *stage) note(err error) {
	if err != nil {
		s.record.broken(err)
	}
}

func (s *stage) readTable(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to be lost
	rows, err := conn.Query(ctx, "select resource, place, token, op from written")
	if err != nil {
		return err
	}
	if s.record.writes.Rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Row]); err != nil {
		return err
	}
	if rows, err = conn.Query(ctx, "select resource, token from fence.floor"); err != nil {
		return err
	}
	if s.record.writes.Floors, err = pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Floor]); err != nil {
		return err
	}
	var sum int64
	const text = `select sum(balance)::bigint, (select count(*) from written) - sum(n)::bigint from register`
	if err := conn.QueryRow(ctx, text).Scan(&sum, &s.record.lost); err != nil {
		return err
	}
	if sum != int64(1000*len(resources)) {
		s.record.broken(fmt.Errorf("the balances are %d in sum", sum))
	}
	if lost := s.record.lost; lost != 0 && !s.options.noFence {
		s.record.broken(fmt.Errorf("%d updates of the registers are lost", lost))
	}
	return nil
}

// verdict judges, writes the report, and returns what is wrong.
func (s *stage) verdict() error {
	r := s.record
	violations := judge.Judge(r.writes)
	acked, unknown := r.outcomes()
	if s.options.noFence {
		if len(violations) == 0 || r.lost <= 0 {
			r.broken(errors.New("without a fence no update was lost: this run can find nothing"))
		} else {
			fmt.Fprintf(s.out, "without a fence, as it should be: %d updates lost; %v\n", r.lost, violations[0])
		}
	} else {
		r.errors = append(r.errors, violations...)
	}
	failures := history.Check(r.steps, time.Minute)
	r.errors = append(r.errors, failures...)
	r.errors = append(r.errors, s.enough(acked)...)
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d coordinators, %v\n", s.options.seed, s.options.nodes, s.since().Round(time.Second))
	fmt.Fprintf(&b, "%d steps of locks, %d writes attempted, %d acknowledged, %d unknown, %d contacts, %d rows\n",
		len(r.steps), len(r.writes.Attempts), acked, unknown, len(r.writes.Contacts), len(r.writes.Rows))
	for _, name := range slices.Sorted(maps.Keys(r.codes)) {
		fmt.Fprintf(&b, "%6d answers %s\n", r.codes[name], name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&b, "%6d %s\n", r.faults[name], name)
	}
	err := errors.Join(r.errors...)
	if err != nil {
		fmt.Fprintf(&b, "FAILED\n%v\n", err)
	} else {
		fmt.Fprintln(&b, "all held")
	}
	fmt.Fprint(s.out, b.String())
	return errors.Join(err, s.report(b.String(), failures))
}

// enough wants a run to have met what it is for.
func (s *stage) enough(acked int) (short []error) {
	seconds, faults := int(s.options.time.Seconds()), 0
	for _, n := range s.record.faults {
		faults += n
	}
	for what, n := range map[string][2]int{
		"steps of locks": {len(s.record.steps), 2 * seconds}, "acknowledged writes": {acked, seconds / 2}, "faults": {faults, seconds / 5},
	} {
		if n[0] < n[1] {
			short = append(short, fmt.Errorf("%d %s, want %d at least", n[0], what, n[1]))
		}
	}
	return short
}

// report leaves the run for people and for programs.
func (s *stage) report(summary string, failures []error) error {
	dir, r := s.options.report, s.record
	text := summary + "\n" + strings.Join(r.timeline, "\n") + "\n"
	err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte(text), 0o600)
	data, err2 := json.Marshal(map[string]any{"seed": s.options.seed, "faults": r.faults, "timeline": r.timeline, "steps": r.steps, "writes": r.writes})
	err = errors.Join(err, err2, os.WriteFile(filepath.Join(dir, "report.json"), data, 0o600))
	for _, failure := range failures {
		var f *history.Failure
		if errors.As(failure, &f) {
			path := filepath.Join(dir, strings.ReplaceAll(f.Resource, "/", "-")+".svg")
			err = errors.Join(err, os.WriteFile(path, []byte(history.Picture(f.Smallest)), 0o600))
		}
	}
	return err
}
