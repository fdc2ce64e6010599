// Package watch fences eagerly: it follows what the coordinator grants and ends, raises floors as soon as a newer token
// is granted for a resource that has bindings here, and ends bindings with their leases where that is wanted.
//
// Nothing depends on it. What it does comes earlier than a new holder's first contact with the store would bring it
// about, and never instead of that. It may lag, miss changes, or see none at all. Clocks play no part in what it
// decides, only in how often it tries.
package watch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// Source opens connections to coordinators.
type Source interface {
	// Open connects to one that proves to be of the cluster, and to another one each time if it can. It blocks until
	// that is known. The Coordinator has to be closed.
	Open(ctx context.Context, cluster string) (Coordinator, error)
}

// Coordinator is a connection to one. Its methods block, and are safe for concurrent use.
type Coordinator interface {
	// Watch calls on with what happens after a revision; "" is from now on. It ends with an error: that of on, of ctx,
	// ErrRevision if the revision is of no use any more, or another when the coordinator is lost.
	Watch(ctx context.Context, revision string, on func(Message) error) error
	// Holders tells who holds one resource. What may not be read is ErrNotAllowed.
	Holders(ctx context.Context, resource string) (Lock, error)
	// List returns held resources after a name in their order, and the name to go on from; "" at the end.
	List(ctx context.Context, after string) (page []Lock, next string, err error)
	Close()
}

// What a Source may fail with, besides.
var (
	ErrRevision   = errors.New("the revision is of no use any more")
	ErrNotAllowed = errors.New("not allowed to read it")
)

// Observer is told what happens. Its methods return at once and are safe for concurrent use.
type Observer interface {
	Watching(bool)                           // whether the watch is connected
	Heard(at time.Time)                      // a message came; there is one every few seconds
	Resynced()                               // what came in between is not known, and is looked up
	Overtook(adapter string)                 // a floor went up before its holder came
	Cut(adapter string, n int)               // bindings ended with their lease
	Waiting(adapter, listener string, n int) // resources whose floor is still to be raised or compared
}

// Listener is one gate that is told.
type Listener struct {
	Name    string // for the log and metrics
	Adapter string
	Gate    *gate.Gate
	Cut     bool // a binding ends with its lease, also if nobody comes after it
	Raises  int  // floors that are raised at the same time: fewer than the store has connections, so that it has some left; at least 1
}

// Config is a Watch. All fields but Logger and MaxQueue are needed.
type Config struct {
	Source    Source
	Cluster   func() string // the cluster whose tickets count; empty until it is known
	Listeners []Listener
	Known     *Known
	Observer  Observer
	Logger    *slog.Logger // nil: none
	MaxQueue  int          // resources of one listener whose floors are to be raised: 10,000
}

// Watch is the one watch of a proxy.
type Watch struct {
	config    Config
	log       *slog.Logger
	known     *Known
	listeners []*listener
	due       chan struct{} // holds one: changes were missed and have to be looked up

	mu    sync.Mutex
	state error // nil: connected
}

// errNotYet stands until the first connection.
var errNotYet = errors.New("not connected yet")

// New does no I/O.
func New(config Config) *Watch {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.MaxQueue == 0 {
		config.MaxQueue = 10_000
	}
	w := &Watch{config: config, log: config.Logger, known: config.Known, due: make(chan struct{}, 1), state: errNotYet}
	for _, l := range config.Listeners {
		w.listeners = append(w.listeners, &listener{
			Listener: l, queue: newQueue(config.MaxQueue, func(n int) { config.Observer.Waiting(l.Adapter, l.Name, n) }),
			observer: config.Observer, log: config.Logger.With("listener", l.Name),
		})
	}
	return w
}

// Problem says why nothing is seen at the moment; nil: the watch is connected. A proxy with a problem here is degraded,
// and as safe as ever.
func (w *Watch) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Between attempts to find a coordinator.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Run watches until ctx is done, and returns when all that it began has ended.
func (w *Watch) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, l := range w.listeners {
		for range max(1, l.Raises) {
			parts.Go(func() { l.work(ctx, w.config.Cluster) })
		}
	}
	f := &following{Watch: w}
	for pause := firstPause; ctx.Err() == nil; {
		heard := f.heard
		err := f.once(ctx)
		if f.heard != heard {
			pause = firstPause
		}
		w.become(ctx, err)
		if !sleep(ctx, pause) {
			break
		}
		pause = min(2*pause, lastPause)
	}
	parts.Wait()
}

// become keeps the state and logs its change.
func (w *Watch) become(ctx context.Context, state error) {
	if ctx.Err() != nil { // a stop, not a loss
		return
	}
	w.mu.Lock()
	before := w.state
	w.state = state
	w.mu.Unlock()
	w.config.Observer.Watching(state == nil)
	switch {
	case state == nil && before != nil:
		w.log.Info("watching the coordinator")
	case state != nil && (before == nil || before.Error() != state.Error()):
		w.log.Warn("the coordinator is not watched: floors rise at a new holder's first contact only", "error", state)
	}
}

// miss notes that something was missed.
func (w *Watch) miss() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// following is what goes on from one coordinator to the next.
type following struct {
	*Watch
	revision string
	heard    int // messages
}

var errNoCluster = errors.New("the cluster is not known yet")

// once follows one coordinator until that is lost.
func (f *following) once(ctx context.Context) error {
	cluster := f.config.Cluster()
	if cluster == "" {
		return errNoCluster
	}
	coordinator, err := f.config.Source.Open(ctx, cluster)
	if err != nil {
		return err
	}
	defer coordinator.Close()
	ctx, stop := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	defer sweeper.Wait()
	defer stop()
	sweeper.Go(func() { f.lookUp(ctx, cluster, coordinator) })
	err = coordinator.Watch(ctx, f.revision, func(m Message) error {
		f.take(ctx, cluster, m)
		return nil
	})
	if errors.Is(err, ErrRevision) {
		f.revision = ""
	}
	return err
}

// take deals with one message. It does not wait for anything.
func (f *following) take(ctx context.Context, cluster string, m Message) {
	if f.heard++; f.heard == 1 || m.Resync || f.revision == "" {
		f.config.Observer.Resynced()
		f.log.Info("floors are compared with the current holders")
		f.miss()
	}
	f.become(ctx, nil)
	f.config.Observer.Heard(time.Now())
	for _, c := range m.Changes {
		f.known.note(c)
		for _, l := range f.listeners {
			if !l.take(cluster, c) {
				f.log.Warn("too many floors are to be raised at once: they are looked up later", "listener", l.Name, "waiting", f.config.MaxQueue)
				f.miss()
			}
		}
	}
	f.revision = m.Revision
}

// sleep reports false when ctx is done before the pause is over.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// newestOf is the newest token of those who hold a resource.
func newestOf(holders []Holder) fencestore.Token {
	if len(holders) == 0 {
		return 0
	}
	return slices.MaxFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Token, b.Token) }).Token
}
