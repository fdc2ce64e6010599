//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"github.com/lychgate/lychgate/chaos/history"
	"github.com/lychgate/lychgate/chaos/soak/judge"
	"github.com/lychgate/lychgate/coordinator/client"
)

// orders are what a client process is told, on its first line of input. It works until its input ends.
type orders struct {
	Name         string
	Number       int
	Seed         uint64
	Coordinators []string
	Databases    []string
	Unfenced     bool
}

// told is what a client tells, as lines of JSON. An attempt is told before it is made, and again with its outcome.
type told struct {
	Step    *history.Step  `json:",omitempty"`
	Op      string         `json:",omitempty"`
	Attempt *judge.Attempt `json:",omitempty"`
	Contact *judge.Contact `json:",omitempty"`
	Code    string         `json:",omitempty"` // the SQLSTATE
}

// sessions is how many threads a client process has.
const sessions = 4

func runClient(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	var o orders
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	var all sync.WaitGroup
	for i := range sessions {
		c, err := client.Dial(client.Config{Addrs: o.Coordinators, ClientID: fmt.Sprintf("%s.%d", o.Name, i), TTL: ttl})
		if err != nil {
			cancel()
			return err
		}
		v := &session{orders: o, number: o.Number*sessions + i, locks: c, dice: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
		v.tell = func(t told) {
			mu.Lock()
			defer mu.Unlock()
			_ = encoder.Encode(t) // nobody listens any more: it ends soon
		}
		all.Go(func() { v.work(ctx) })
	}
	_, _ = io.Copy(io.Discard, lines) // up to the end of the input, however it comes
	cancel()
	all.Wait()
	return nil
}

// now is on a clock that all processes of the machine have.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // Linux has it
	return time.Duration(t.Nano())
}

// session takes locks and works under them, one after the other.
type session struct {
	orders orders
	number int
	ops    int
	locks  *client.Client
	dice   *rand.Rand
	tell   func(told)
}

func (v *session) work(ctx context.Context) {
	for ctx.Err() == nil {
		switch n := v.dice.IntN(100); {
		case n < 50:
			v.increment(ctx, resources[v.dice.IntN(2)])
		case n < 65:
			v.transfer(ctx)
		case n < 75:
			v.share(ctx, resources[v.dice.IntN(len(resources))])
		case n < 85:
			v.giveUp(ctx, resources[v.dice.IntN(len(resources))])
		default:
			v.look(ctx, resources[v.dice.IntN(len(resources))])
		}
	}
	_ = v.locks.Close() // what is still held runs out
}

// taken is a lease as the history has it.
type taken struct {
	*client.Lease
	step history.Step
}

// take takes locks, and tells how each went.
func (v *session) take(ctx context.Context, names []string, options ...client.Option) []taken {
	call := now()
	shared := len(options) > 0
	leases, err := v.locks.AcquireAll(ctx, names, append(options, client.Wait(15*time.Second))...)
	var all []taken
	step := history.Step{Kind: history.Acquire, Client: v.number, Shared: shared, Call: call, Return: now()}
	if err != nil {
		for _, name := range names {
			step.Resource = name
			v.tell(told{Step: new(step)})
		}
		return nil
	}
	for _, l := range leases {
		v.ops++
		step.Resource, step.Token, step.Lease = string(l.Resource()), uint64(l.Token()), fmt.Sprintf("c%d.%d", v.number, v.ops)
		v.tell(told{Step: new(step)})
		all = append(all, taken{l, step})
	}
	return all
}

// letGo releases, and tells when the lease ended: by the release, or by itself from its deadline on.
func (v *session) letGo(t taken) {
	end := t.step
	end.Kind, end.Call = history.End, now()
	deadline := t.step.Call + ttl - 50*time.Millisecond // if its deadline was ever moved, nobody knows any more to where
	if left := t.Remaining(); left > 0 {
		deadline = now() + left
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := t.Release(ctx)
	end.Call, end.Return = min(end.Call, deadline), history.Forever
	if err == nil {
		end.Return = now()
	}
	v.tell(told{Step: &end})
}

// connect shows tickets to a proxy, if there is a fence.
func (v *session) connect(ctx context.Context, all ...taken) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig("postgres://app@" + v.orders.Databases[v.dice.IntN(len(v.orders.Databases))] + "/app?sslmode=disable")
	if err != nil {
		return nil, err
	}
	for i, t := range all {
		if v.orders.Unfenced {
			break
		}
		if i > 0 {
			config.RuntimeParams["fence.ticket"] += ","
		}
		config.RuntimeParams["fence.ticket"] += t.Ticket()
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	return pgconn.ConnectConfig(ctx, config)
}

func query(conn *pgconn.PgConn, text string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	return conn.Exec(ctx, text).ReadAll()
}

// increment reads, pauses and writes what it has read, plus one. Now and then it lets the lock go in between, and writes
// nevertheless: a zombie.
func (v *session) increment(ctx context.Context, name string) {
	for _, t := range v.take(ctx, []string{name}) {
		zombie := v.dice.IntN(5) == 0
		if !zombie {
			defer v.letGo(t)
		}
		conn, n, err := v.read(ctx, t)
		if zombie {
			v.letGo(t)
			pause(ctx, time.Duration(v.dice.IntN(400))*time.Millisecond)
		}
		if err != nil {
			continue
		}
		pause(ctx, time.Duration(v.dice.IntN(50))*time.Millisecond)
		v.ops++
		op := fmt.Sprintf("%d.%d", v.number, v.ops)
		v.attempt(conn, map[string]judge.Attempt{op: {Resource: name, Token: t.step.Token}}, fmt.Sprintf(
			"with r as (update register set n = %[2]d where resource = '%[1]s') insert into written values ('%[1]s', %[2]d, %[3]d, '%[4]s')",
			name, n+1, t.step.Token, op))
	}
}

// read connects and reads a register. Without an error the caller closes the connection.
func (v *session) read(ctx context.Context, t taken) (*pgconn.PgConn, int64, error) {
	conn, err := v.connect(ctx, t)
	if err != nil {
		v.tell(told{Code: code(err)})
		return nil, 0, err
	}
	results, err := query(conn, "select n from register where resource = '"+t.step.Resource+"'")
	if err != nil {
		v.tell(told{Code: code(err)})
		leave(conn)
		return nil, 0, err
	}
	var n int64
	if _, err := fmt.Sscan(string(results[0].Rows[0][0]), &n); err != nil {
		leave(conn)
		return nil, 0, err
	}
	v.tell(told{Contact: &judge.Contact{Resource: t.step.Resource, Token: t.step.Token, Seen: n}})
	return conn, n, nil
}

func leave(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be gone
}

// attempt writes in one statement, and leaves.
func (v *session) attempt(conn *pgconn.PgConn, writes map[string]judge.Attempt, text string) {
	for op, a := range writes {
		v.tell(told{Op: op, Attempt: &a})
	}
	_, err := query(conn, text)
	leave(conn)
	for op, a := range writes {
		a.Outcome = outcome(err)
		v.tell(told{Op: op, Attempt: &a, Code: code(err)})
	}
}

// transfer moves money between two resources in one transaction.
func (v *session) transfer(ctx context.Context) {
	all := v.take(ctx, resources[2:])
	for _, t := range all {
		defer v.letGo(t)
	}
	if len(all) != 2 {
		return
	}
	conn, err := v.connect(ctx, all...)
	if err != nil {
		v.tell(told{Code: code(err)})
		return
	}
	v.ops++
	op := fmt.Sprintf("%d.%d", v.number, v.ops)
	a, b := all[0].step, all[1].step
	v.attempt(conn, map[string]judge.Attempt{
		op + ".from": {Resource: a.Resource, Token: a.Token}, op + ".to": {Resource: b.Resource, Token: b.Token},
	}, fmt.Sprintf(`with a as (update register set balance = balance - 7, n = n + 1 where resource = '%[1]s' returning n),
		b as (update register set balance = balance + 7, n = n + 1 where resource = '%[2]s' returning n)
		insert into written select '%[1]s', n, %[3]d, '%[5]s.from' from a union all select '%[2]s', n, %[4]d, '%[5]s.to' from b`,
		a.Resource, b.Resource, a.Token, b.Token, op))
}

// share reads together with others.
func (v *session) share(ctx context.Context, name string) {
	for _, t := range v.take(ctx, []string{name}, client.Shared()) {
		if conn, _, err := v.read(ctx, t); err == nil {
			leave(conn)
		}
		v.letGo(t)
	}
}

// giveUp waits for a moment only.
func (v *session) giveUp(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(v.dice.IntN(100))*time.Millisecond)
	defer cancel()
	for _, t := range v.take(ctx, []string{name}) {
		v.letGo(t)
	}
}

func (v *session) look(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	s := history.Step{Kind: history.Look, Resource: name, Client: v.number, Call: now()}
	answer, err := v.locks.Get(ctx, name)
	if err != nil {
		return // it says nothing
	}
	if holders := answer.GetLock().GetHolders(); len(holders) > 0 {
		s.Token = holders[0].GetFencingToken()
	}
	s.Return = now()
	v.tell(told{Step: &s})
}

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// outcome is what an answer promises of a write.
func outcome(err error) judge.Outcome {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return judge.Acknowledged
	case errors.As(err, &e) && (e.Severity == "ERROR" || e.Code == "LG001"):
		return judge.Refused
	}
	return judge.Unknown
}
