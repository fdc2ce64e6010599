// Package primary knows which of several hosts is the database server now. A fence can stand on one server at a time: so
// all sessions, cancel requests and side connections go where this package says, and when that changes those of the server
// before are ended first.
package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Defaults, and bounds of Config.
const (
	DefaultEvery = time.Second
	askTimeout   = 3 * time.Second        // of one host, its connect included
	illEvery     = 250 * time.Millisecond // between looks while there is no server, at most
	MaxHosts     = 16
)

// Config of a Prober.
type Config struct {
	Hosts []string // in the order in which they are preferred, while nothing else decides
	Attrs Attrs    // empty: ReadWrite
	// Ask asks a host for what it is. It is called with a deadline, for different hosts at the same time.
	Ask func(ctx context.Context, host string) (Answer, error)
	// Follow moves the side connections to a host; when it returns there are none to any other. Nil: nothing to move.
	Follow func(host string) error
	Every  time.Duration // between looks while there is a server; 0: DefaultEvery
	Logger *slog.Logger  // nil: silent
}

// Prober looks at the hosts while it runs. Its other methods may be called by anybody.
type Prober struct {
	config Config
	memory memory // of Run alone

	mu     sync.Mutex
	tenure *tenure       // nil: there is no server yet
	why    []error       // of the latest look
	usable bool          // the current host was eligible in it, or gave no answer
	looked chan struct{} // closed by the next look that begins after now; renewed
	first  chan struct{} // closed by the first look
	kick   chan struct{}
}

// tenure is the time in which one host is the server.
type tenure struct {
	host string
	ctx  context.Context
	end  context.CancelCauseFunc
}

// New checks the configuration and does no I/O.
func New(config Config) (*Prober, error) {
	if config.Attrs == "" {
		config.Attrs = ReadWrite
	}
	if config.Every == 0 {
		config.Every = DefaultEvery
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(config.Hosts) == 0 || len(config.Hosts) > MaxHosts:
		return nil, fmt.Errorf("%d hosts; 1 to %d can be looked at", len(config.Hosts), MaxHosts)
	case !slices.Contains(AllAttrs(), string(config.Attrs)):
		return nil, fmt.Errorf("target_session_attrs is %q", config.Attrs)
	case config.Ask == nil:
		return nil, errors.New("nobody to ask")
	}
	return &Prober{
		config: config, memory: memory{current: -1}, looked: make(chan struct{}), first: make(chan struct{}), kick: make(chan struct{}, 1),
	}, nil
}

// Run looks at the hosts until ctx is done: every second, more often while there is no server, and at once on Doubt.
func (p *Prober) Run(ctx context.Context) {
	for ctx.Err() == nil {
		p.look(ctx)
		pause := p.config.Every
		if p.Problem() != nil {
			pause = min(pause, illEvery)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.kick:
		}
		timer.Stop()
	}
}

func (p *Prober) look(ctx context.Context) {
	p.mu.Lock()
	done := p.looked
	p.looked = make(chan struct{}) // who doubts from now on waits for the next look
	p.mu.Unlock()
	defer close(done)
	l := p.askAll(ctx)
	if ctx.Err() != nil {
		return // a stop, not an answer
	}
	before := p.memory
	next, reasons := choose(p.config.Attrs, before, l)
	if next.current != before.current {
		if err := p.move(next.current, l.answers[next.current]); err != nil {
			next.current, reasons[next.current] = before.current, err
		}
	}
	p.memory = next
	p.note(next.current, reasons, l)
}

func (p *Prober) askAll(ctx context.Context) look {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l := look{answers: make([]Answer, len(p.config.Hosts)), errs: make([]error, len(p.config.Hosts))}
	var wg sync.WaitGroup
	for i, host := range p.config.Hosts {
		wg.Go(func() { l.answers[i], l.errs[i] = p.config.Ask(ctx, host) })
	}
	wg.Wait()
	return l
}

// move ends the tenure of the host before, with everything that stands on it, and then begins the next.
func (p *Prober) move(to int, a Answer) error {
	host := p.config.Hosts[to]
	p.mu.Lock()
	before := p.tenure
	p.mu.Unlock()
	if before == nil {
		p.config.Logger.Info("the database server is known", "host", host, "timeline", a.Timeline, "system", a.System)
	} else {
		p.config.Logger.Warn("the database server has changed: sessions on the one before end", "host", host, "before", before.host,
			"timeline", a.Timeline, "system", a.System)
		before.end(fmt.Errorf("the database server is %s now, no longer %s", host, before.host))
	}
	if p.config.Follow != nil {
		if err := p.config.Follow(host); err != nil {
			return err
		}
	}
	next := &tenure{host: host}
	next.ctx, next.end = context.WithCancelCause(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenure = next
	return nil
}

// note keeps what was found, and logs what differs from before.
func (p *Prober) note(current int, reasons []error, l look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, reason := range reasons {
		if text := fmt.Sprint(reason); p.why == nil && reason != nil || p.why != nil && text != fmt.Sprint(p.why[i]) {
			p.config.Logger.Info("database host", "host", p.config.Hosts[i], "eligible", reason == nil, "reason", text)
		}
	}
	if p.why == nil {
		close(p.first)
	}
	p.why = reasons
	p.usable = current >= 0 && (reasons[current] == nil || l.errs[current] != nil)
}

// Current is the host that is the server now, and its tenure, which is done, with a cause, when another takes its place. It
// waits for the first look until ctx is done. A host that gives no answer is still the current one, as long as there is no other. The
// error is a *NoServerError, or ctx's.
func (p *Prober) Current(ctx context.Context) (host string, during context.Context, err error) {
	select {
	case <-p.first:
	case <-ctx.Done():
		return "", nil, fmt.Errorf("no host was looked at yet: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenure == nil || !p.usable {
		return "", nil, &NoServerError{p.config.Hosts, p.why}
	}
	return p.tenure.host, p.tenure.ctx, nil
}

// Doubt has the hosts looked at again, because a connect did not work or a session has seen its server change. The channel is
// closed when a look that has begun after now is done.
func (p *Prober) Doubt() (looked <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default: // it is going to
	}
	return p.looked
}

// Problem is why there is no server to use now, as a *NoServerError; nil: there is one, and it answers.
func (p *Prober) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.why == nil:
		return errors.New("no host was looked at yet")
	case p.tenure != nil && p.why[slices.Index(p.config.Hosts, p.tenure.host)] == nil:
		return nil
	}
	return &NoServerError{p.config.Hosts, p.why}
}
