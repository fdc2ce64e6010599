package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// orders are what a client process is told, on its first line of input. It works until its input ends.
type orders struct {
	Name     string   // of the process; no other ever has it
	Seed     uint64   //
	Tickets  string   // URL that grants
	Proxies  []string // addresses
	Workers  int
	Unfenced bool // it shows no ticket
}

// told is what a client tells of itself, as lines of JSON: what it is about to do before it does it.
type told struct {
	Kind     kind
	Resource string
	Token    uint64
	Op       string `json:",omitempty"`
	Outcome  string `json:",omitempty"` // acknowledged, refused, unknown
	Code     string `json:",omitempty"` // the SQLSTATE
	Seen     int64  `json:",omitempty"`
	Fresh    bool   `json:",omitempty"` // the token was never shown before
}

type kind string

const (
	begun   kind = "begun"   // an attempt
	ended   kind = "ended"   // an attempt
	contact kind = "contact" // a first read
	refused kind = "refused" // a session that was not let in
)

// grant is what the issuer answers.
type grant struct {
	Resource string
	Token    uint64
	Ticket   string
}

// runClient is the whole of a client process.
func runClient(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	c := &client{out: json.NewEncoder(out), http: &http.Client{Timeout: 10 * time.Second}}
	if err := json.Unmarshal(line, &c.orders); err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var workers sync.WaitGroup
	for i := range c.orders.Workers {
		w := &worker{client: c, name: fmt.Sprintf("%s.%d", c.orders.Name, i), dice: rand.New(rand.NewPCG(c.orders.Seed, uint64(i)))}
		workers.Go(func() { w.run(ctx) })
	}
	_, _ = io.Copy(io.Discard, lines) // its end is the order to stop
	stop()
	workers.Wait()
	return nil
}

// client is one process of many workers.
type client struct {
	orders orders
	http   *http.Client
	mu     sync.Mutex
	out    *json.Encoder
}

func (c *client) tell(t told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(t) // the other end is gone: so is the reason to tell
}

// grant takes the next token of a resource.
func (c *client) grant(ctx context.Context, resource string) (g grant, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.orders.Tickets+"?resource="+url.QueryEscape(resource), nil)
	if err != nil {
		return g, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return g, err
	}
	defer response.Body.Close()
	return g, json.NewDecoder(response.Body).Decode(&g)
}

// worker does one thing after another.
type worker struct {
	client *client
	name   string
	dice   *rand.Rand
	ops    int
	kept   []grant // tickets to come back with
}

const keptMax = 8

// stepBound is how long one step of a client may take: a stop of whatever it waits for is shorter.
const stepBound = 20 * time.Second

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.visit(ctx)
	}
}

// choose takes a new ticket, or one that was shown before and may be stale.
func (w *worker) choose(ctx context.Context) (g grant, fresh bool, err error) {
	if len(w.kept) > 0 && w.dice.IntN(100) < 45 {
		return w.kept[w.dice.IntN(len(w.kept))], false, nil
	}
	g, err = w.client.grant(ctx, resources[w.dice.IntN(len(resources))])
	if err != nil {
		return g, false, err
	}
	if len(w.kept) == keptMax {
		w.kept = w.kept[1:]
	}
	w.kept = append(w.kept, g)
	return g, true, nil
}

// visit is one session: log in, look, write a few times, leave in one way or another.
func (w *worker) visit(ctx context.Context) {
	g, fresh, err := w.choose(ctx)
	if err != nil {
		return // the run is over
	}
	v := &visitor{worker: w, grant: g, how: w.dice.IntN(3)}
	if err := v.enter(ctx); err != nil {
		w.client.tell(told{Kind: refused, Resource: g.Resource, Token: g.Token, Code: codeOf(err)})
		pause(ctx, time.Duration(w.dice.IntN(100))*time.Millisecond)
		return
	}
	for i := 0; i < 1+w.dice.IntN(12) && ctx.Err() == nil && !v.conn.IsClosed(); i++ {
		if i == 0 && v.how != bySetLocal {
			if err := v.look(fresh); err != nil {
				break
			}
		}
		v.act(ctx, fresh && i == 0)
	}
	v.leave()
}

// pause ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// codeOf is the SQLSTATE of an error, or what stands for one.
func codeOf(err error) string {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "broken"
}
