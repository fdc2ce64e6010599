package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/chaos/soak/judge"
)

// poll reads the floors until ctx is done.
func (s *soak) poll(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.readFloors(ctx, true) // the server may be down at the moment
		pause(ctx, 200*time.Millisecond)
	}
}

// readFloors reads them once, or until ctx is done.
func (s *soak) readFloors(ctx context.Context, again bool) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is left to be lost
	for {
		rows, err := conn.Query(ctx, "select resource, token from fence.floor order by resource")
		if err != nil {
			return err
		}
		floors, err := pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Floor])
		if err != nil {
			return err
		}
		s.record.floors(floors)
		if !again || ctx.Err() != nil {
			return nil
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func (s *soak) askNumber(ctx context.Context, sql string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, sql).Scan(&n)
	return n, errors.Join(err, conn.Close(ctx))
}

// calm lets the clients end by themselves.
func (s *soak) calm(context.Context) {
	for _, c := range s.clients {
		if !c.end() {
			s.record.fault(fmt.Errorf("client %s: %v", c.name, c.cmd.ProcessState))
		}
	}
	s.clients = nil
}

// lastBound is how long it may take until nothing of the sessions is left.
const lastBound = 60 * time.Second

// finish sees whether the proxies still do their work, and that they let go of everything.
func (s *soak) finish(ctx context.Context) error {
	for _, p := range s.proxies {
		for _, resource := range resources {
			if err := s.lastWrite(ctx, p, resource); err != nil {
				return fmt.Errorf("after all trouble %s does not let a new holder of %s write: %w", p.name, resource, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lastBound)
	defer cancel()
	var left error
	for {
		if left = s.leftBehind(ctx); left == nil {
			break
		}
		pause(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("left behind: %w", left)
		}
	}
	for _, p := range s.proxies {
		f, err := p.figures(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s: %.0f files, %.0f goroutines, %.1f MB\n", p.name, f.files, f.goroutines, f.resident/1e6)
	}
	return nil
}

// lastWrite is a new holder's, through one proxy.
func (s *soak) lastWrite(ctx context.Context, p *proxy, resource string) error {
	g, err := s.issuer.grant(resource)
	if err != nil {
		return err
	}
	o := orders{Proxies: []string{p.listen}, Unfenced: s.options.unfenced}
	w := &worker{client: &client{orders: o}, dice: rand.New(rand.NewPCG(s.options.seed, 1))}
	v := &visitor{worker: w, grant: g, how: byParameter}
	if err := v.enter(ctx); err != nil {
		return err
	}
	defer v.leave()
	op := fmt.Sprintf("last.%s.%s", p.name, resource)
	t := told{Kind: begun, Resource: resource, Token: g.Token, Op: op}
	s.record.note(t)
	if err := v.exec(v.write(op)); err != nil {
		return err
	}
	t.Kind, t.Outcome = ended, "acknowledged"
	s.record.note(t)
	return nil
}

// The most that a proxy at rest may hold. It has eight side connections, a loop's three descriptors, its listeners and
// goroutines of its own.
const (
	filesMax      = 32
	goroutinesMax = 60
	residentMax   = 128e6
)

// leftBehind is what should be gone when nobody is there any more.
func (s *soak) leftBehind(ctx context.Context) error {
	for what, sql := range map[string]string{
		"bindings in the database": "select count(*) from fence.binding",
		"server processes":         "select count(*) from pg_stat_activity where usename = 'app'",
	} {
		if n, err := s.askNumber(ctx, sql); err != nil || n > 0 {
			return errors.Join(err, fmt.Errorf("%d %s", n, what))
		}
	}
	for _, p := range s.proxies {
		f, err := p.figures(ctx)
		if err != nil {
			return err
		}
		if f.bindings != 0 || f.files > filesMax || f.goroutines > goroutinesMax || f.resident > residentMax {
			return fmt.Errorf("%s: %+v", p.name, f)
		}
	}
	return nil
}

// verdict reads the table and lets the judge speak.
func (s *soak) verdict(ctx context.Context) error {
	if err := s.readTable(ctx); err != nil {
		return err
	}
	if err := s.readFloors(ctx, false); err != nil {
		return err
	}
	for _, p := range s.proxies {
		if !p.process.end() {
			s.record.fault(fmt.Errorf("%s: a stop ends in %v", p.name, p.process.cmd.ProcessState))
		}
	}
	fmt.Fprintln(s.out, s.record.line())
	for _, name := range slices.Sorted(maps.Keys(s.acts)) {
		fmt.Fprintf(s.out, "%6d %s\n", s.acts[name], name)
	}
	fmt.Fprintf(s.out, "%6d rows, %d readings of floors\n", len(s.record.history.Rows), len(s.record.history.Floors))
	violations := judge.Judge(s.record.history)
	if s.options.unfenced {
		if len(violations) == 0 {
			return errors.New("without a fence the judge has found nothing")
		}
		fmt.Fprintf(s.out, "without a fence, as it should be: %v\n", violations[0])
		return nil
	}
	return errors.Join(errors.Join(violations...), errors.Join(s.record.faults...), s.enough())
}

func (s *soak) readTable(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to be lost
	rows, err := conn.Query(ctx, "select resource, place, token, op from written")
	if err != nil {
		return err
	}
	s.record.history.Rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Row])
	return err
}

// enough wants a run to have met what it is for.
func (s *soak) enough() error {
	r, seconds := s.record, int(s.options.time.Seconds())
	var short []error
	for what, n := range map[string][2]int{
		"commits": {r.acked, 2 * seconds}, "takeovers": {r.takeovers, seconds}, "stale tickets refused": {r.codes["LG001"], seconds},
		"proxies killed": {s.acts["proxy killed"], min(1, seconds/10)}, "readings of floors": {len(r.history.Floors), seconds},
	} {
		if n[0] < n[1] {
			short = append(short, fmt.Errorf("%d %s, want %d at least", n[0], what, n[1]))
		}
	}
	return errors.Join(short...)
}
