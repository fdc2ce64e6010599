package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// How a visitor shows its ticket.
const (
	byParameter = iota // when it connects
	bySet              // for the session
	bySetLocal         // for each transaction
)

// visitor is one session of a worker.
type visitor struct {
	*worker
	grant grant
	how   int
	conn  *pgconn.PgConn
}

// enter logs in.
func (v *visitor) enter(ctx context.Context) error {
	proxies := v.client.orders.Proxies
	config, err := pgconn.ParseConfig("postgres://app@" + proxies[v.dice.IntN(len(proxies))] + "/app?sslmode=disable")
	if err != nil {
		return err
	}
	if v.client.orders.Unfenced {
		v.how = byParameter
	} else if v.how == byParameter {
		config.RuntimeParams["fence.ticket"] = v.grant.Ticket
	}
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	if v.conn, err = pgconn.ConnectConfig(ctx, config); err != nil {
		return err
	}
	if v.how == bySet {
		if err := v.exec("set fence.ticket = '" + v.grant.Ticket + "'"); err != nil {
			v.leave()
			return err
		}
	}
	return nil
}

func (v *visitor) query(sql string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepBound)
	defer cancel()
	if strings.HasPrefix(sql, "with") && v.dice.IntN(2) == 0 {
		result := v.conn.ExecParams(ctx, sql, nil, nil, nil, nil).Read()
		return []*pgconn.Result{result}, result.Err
	}
	return v.conn.Exec(ctx, sql).ReadAll()
}

func (v *visitor) exec(sql string) error {
	_, err := v.query(sql)
	return err
}

// look reads how much has been written, under the ticket, and tells it.
func (v *visitor) look(fresh bool) error {
	results, err := v.query("select n from counter where resource = '" + v.grant.Resource + "'")
	if err != nil {
		v.client.tell(told{Kind: refused, Resource: v.grant.Resource, Token: v.grant.Token, Code: codeOf(err)})
		return err
	}
	seen, err := strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64)
	if err != nil {
		return err
	}
	v.client.tell(told{Kind: contact, Resource: v.grant.Resource, Token: v.grant.Token, Seen: seen, Fresh: fresh})
	return nil
}

// write makes the statement of one write. The counter's row is locked to the end of the transaction, so places are
// handed out in the order of commits.
func (v *visitor) write(op string) string {
	return fmt.Sprintf("with place as (update counter set n = n + 1 where resource = '%[1]s' returning n) "+
		"insert into written select '%[1]s', n, %[2]d, '%[3]s' from place", v.grant.Resource, v.grant.Token, op)
}

// act does one thing of several.
func (v *visitor) act(ctx context.Context, fresh bool) {
	n := v.dice.IntN(100)
	switch {
	case v.how == bySetLocal || n < 45:
		v.inBlock(ctx, fresh)
	case n < 80:
		v.alone()
	case n < 88:
		_ = v.exec("select repeat('x', 1000) from generate_series(1, 3000)") // what it ends in, the next write tells
	case n < 94:
		v.cancelled()
	default:
		pause(ctx, time.Duration(v.dice.IntN(200))*time.Millisecond)
	}
}

// attempt tells of a write before it is made, and then how it ended.
func (v *visitor) attempt(write func(op string) (outcome, code string)) {
	v.ops++
	op := fmt.Sprintf("%s.%d", v.name, v.ops)
	t := told{Kind: begun, Resource: v.grant.Resource, Token: v.grant.Token, Op: op}
	v.client.tell(t)
	t.Kind = ended
	t.Outcome, t.Code = write(op)
	v.client.tell(t)
}

// alone writes in a statement that is its own transaction.
func (v *visitor) alone() {
	v.attempt(func(op string) (string, string) {
		err := v.exec(v.write(op))
		return outcomeOf(err), codeOf(err)
	})
}

// inBlock writes in a transaction, and may stay in it for a while. An attempt whose COMMIT was not sent counts as refused.
func (v *visitor) inBlock(ctx context.Context, fresh bool) {
	v.attempt(func(op string) (string, string) {
		before := []string{"begin"}
		if v.how == bySetLocal {
			before = append(before, "set local fence.ticket = '"+v.grant.Ticket+"'")
		}
		for _, sql := range before {
			if err := v.exec(sql); err != nil {
				return v.rollBack(err)
			}
		}
		if v.how == bySetLocal {
			if err := v.look(fresh); err != nil {
				return v.rollBack(err)
			}
		}
		if err := v.exec(v.write(op)); err != nil {
			return v.rollBack(err)
		}
		if v.dice.IntN(3) == 0 {
			pause(ctx, time.Duration(v.dice.IntN(300))*time.Millisecond)
		}
		if v.dice.IntN(20) == 0 {
			v.conn.Conn().Close() // it vanishes
		}
		results, err := v.query("commit")
		if err == nil && results[0].CommandTag.String() != "COMMIT" {
			return "refused", ""
		}
		return outcomeOf(err), codeOf(err)
	})
}

func (v *visitor) rollBack(err error) (outcome, code string) {
	if !v.conn.IsClosed() {
		_ = v.exec("rollback") // what it ends in, the next statement tells
	}
	return "refused", codeOf(err)
}

// cancelled writes in a statement that takes long, and cancels it.
func (v *visitor) cancelled() {
	v.attempt(func(op string) (string, string) {
		answer := make(chan error, 1)
		go func() { // joined below
			ctx, cancel := context.WithTimeout(context.Background(), stepBound)
			defer cancel()
			_, err := v.conn.Exec(ctx, v.write(op)+", pg_sleep(5)").ReadAll()
			answer <- err
		}()
		time.Sleep(time.Duration(v.dice.IntN(50)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), stepBound)
		defer cancel()
		_ = v.conn.CancelRequest(ctx) // the proxy may be gone
		err := <-answer
		return outcomeOf(err), codeOf(err)
	})
}

// leave ends the session in one of three ways.
func (v *visitor) leave() {
	if v.dice.IntN(3) == 0 {
		v.conn.Conn().Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = v.conn.Close(ctx) // it may be gone
}

// outcomeOf says what an answer promises of a write. LG001 says that it was rolled back, LG008 that nobody knows; an error
// that does not end the session is the server's own, and rolls back.
func outcomeOf(err error) string {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return "acknowledged"
	case errors.As(err, &e) && (e.Severity == "ERROR" || e.Code == "LG001"):
		return "refused"
	}
	return "unknown"
}
