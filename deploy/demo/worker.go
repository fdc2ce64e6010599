package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
)

// A worker is a process of its own: it holds a lease through the Go client, which renews by itself, and
// writes through a plain psql. It is deliberately careless: told to write, it writes, without asking
// whether its lease still stands. It takes one request a line and answers each with one line of JSON.
type request struct {
	Do   string        `json:"do"` // acquire, connect, sql, renewed, release
	Wait time.Duration `json:"wait,omitempty"`
	DSN  string        `json:"dsn,omitempty"`
	SQL  string        `json:"sql,omitempty"`
}

type answer struct {
	Token  uint64 `json:"token,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

type worker struct {
	name     string
	resource string
	ttl      time.Duration
	client   *client.Client
	lease    *client.Lease
	ticket   string
	psql     *psql
}

func runWorker(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	w := &worker{}
	addrs := flags.String("addrs", "", "coordinator addresses, comma separated")
	flags.StringVar(&w.name, "name", "", "client id")
	flags.StringVar(&w.resource, "resource", "", "resource to lock")
	flags.DurationVar(&w.ttl, "ttl", 5*time.Second, "lease TTL")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	w.client, err = client.Dial(client.Config{Addrs: strings.Split(*addrs, ","), ClientID: w.name})
	if err != nil {
		return err
	}
	defer func() { _ = w.client.Close() }() // a lease that is left runs out
	defer w.disconnect()
	lines, encode := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		a, err := w.do(ctx, r)
		if err != nil {
			a.Error = err.Error()
		}
		if err := encode.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w *worker) do(ctx context.Context, r request) (answer, error) {
	switch r.Do {
	case "acquire":
		lease, err := w.client.Acquire(ctx, w.resource, client.TTL(w.ttl), client.Wait(r.Wait))
		if err != nil {
			return answer{}, err
		}
		w.lease, w.ticket = lease, lease.Ticket()
		return answer{Token: uint64(lease.Token())}, nil
	case "connect":
		w.disconnect()
		p, err := startPsql(ctx, r.DSN, w.ticket)
		w.psql = p
		return answer{}, err
	case "sql":
		out, err := w.psql.run(r.SQL)
		return answer{Output: out}, err
	case "renewed":
		return answer{}, w.renewed(ctx)
	case "release":
		return answer{}, w.lease.Release(ctx)
	}
	return answer{}, fmt.Errorf("unknown request %q", r.Do)
}

// renewed waits until the client's own renewal has moved the lease's deadline.
func (w *worker) renewed(ctx context.Context) error {
	left := w.lease.Remaining()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// It only shrinks until a renewal succeeds.
			if now := w.lease.Remaining(); now > left {
				return nil
			} else {
				left = now
			}
		case <-w.lease.Done():
			return w.lease.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *worker) disconnect() {
	if w.psql != nil {
		w.psql.close()
		w.psql = nil
	}
}

// psql is an unmodified psql that reads statements from a pipe.
type psql struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// startPsql connects with the ticket as a startup parameter, which is all that a libpq application has to add.
func startPsql(ctx context.Context, dsn, ticket string) (*psql, error) {
	cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-A", "-t", "-v", "VERBOSITY=verbose", "-v", "SHOW_CONTEXT=never", dsn)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c fence.ticket="+ticket)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &psql{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}, nil
}

const done = "-- done --"

// run sends one statement and returns what psql printed for it. An error line of the server, and a psql that
// ended, are errors.
func (p *psql) run(sql string) (string, error) {
	if p == nil {
		return "", errors.New("not connected")
	}
	// A psql that has already exited is told by its output, which is read to its end below.
	_, _ = fmt.Fprintf(p.stdin, "%s\n\\echo %s\n", sql, done)
	var out bytes.Buffer
	ended := true
	for p.lines.Scan() {
		if p.lines.Text() == done {
			ended = false
			break
		}
		fmt.Fprintln(&out, p.lines.Text())
	}
	text := strings.TrimSpace(out.String())
	if ended || strings.Contains(text, "ERROR:") || strings.Contains(text, "FATAL:") {
		return "", errors.New(text)
	}
	return text, nil
}

func (p *psql) close() {
	p.stdin.Close()
	_ = p.cmd.Wait() // its exit code says how the session ended, which run has reported
}
