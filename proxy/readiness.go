package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
)

// How often readiness is looked at. A check asks the store one question over a connection that is open anyway.
const (
	checkTimeout  = 3 * time.Second
	checkWhenWell = 5 * time.Second
	checkWhenIll  = time.Second
)

// keyRing is what readiness needs of the keys of tickets.
type keyRing interface {
	Refresh(ctx context.Context) error
	Cluster() string // empty until it is known
	Version() uint64 // 0 until keys are there
}

// checked is a store whose readiness is watched.
type checked struct {
	field string                                          // of the configuration
	role  string                                          // that the store logs in as
	check func(ctx context.Context, cluster string) error // fencestore.Store's
	set   func(ready bool)                                // tells the metrics
}

// readiness knows whether the proxy can do its work. It looks in the background, so that asking costs nothing
// and a store that hangs holds nobody. It never stops a listener: that a connection may come in is decided
// for each connection by the store itself.
type readiness struct {
	keys   keyRing
	stores []checked
	logger *slog.Logger

	mu       sync.Mutex
	draining bool
	keysErr  error
	errs     []error // of each store
}

var (
	// errNotAsked stands until the first answer.
	errNotAsked = errors.New("not asked yet")
	// A store is pinned to one cluster, so it can only be asked about one.
	errClusterUnknown = errors.New("not asked while the cluster is unknown")
)

func newReadiness(keys keyRing, stores []checked, logger *slog.Logger) *readiness {
	r := &readiness{keys: keys, stores: stores, logger: logger, keysErr: errNotAsked, errs: make([]error, len(stores))}
	for i := range r.errs {
		r.errs[i] = errNotAsked
	}
	return r
}

// run looks until ctx is done.
func (r *readiness) run(ctx context.Context) {
	for {
		r.look(ctx)
		pause := checkWhenWell
		if len(r.problems()) > 0 {
			pause = checkWhenIll
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// look asks once: for the keys while there are none, which also tells the cluster, then all stores at the same
// time.
func (r *readiness) look(ctx context.Context) {
	r.lookAtKeys(ctx)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.stores {
		wg.Go(func() { r.lookAtStore(ctx, i) })
	}
	wg.Wait()
}

func (r *readiness) lookAtKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var err error
	if r.keys.Version() == 0 {
		err = r.keys.Refresh(ctx)
	}
	r.note(ctx, &r.keysErr, err, "the keys of tickets are there", "no coordinator gives the keys of tickets",
		"cluster", r.keys.Cluster())
}

func (r *readiness) lookAtStore(ctx context.Context, i int) {
	s := r.stores[i]
	err := errClusterUnknown
	if cluster := r.keys.Cluster(); cluster != "" {
		err = s.plainly(s.check(ctx, cluster))
	}
	s.set(err == nil)
	r.note(ctx, &r.errs[i], err, "store ready", "store not ready", "listener", s.field)
}

// note keeps an answer and logs it when it differs from the one before.
func (r *readiness) note(ctx context.Context, kept *error, err error, good, bad string, attrs ...any) {
	if errors.Is(ctx.Err(), context.Canceled) { // a stop, not an answer
		return
	}
	r.mu.Lock()
	before := *kept
	*kept = err
	r.mu.Unlock()
	switch {
	case err == nil && before != nil:
		r.logger.Info(good, attrs...)
	case err != nil && (before == nil || before.Error() != err.Error()):
		r.logger.Warn(bad, append(attrs, "error", err)...)
	}
}

// drain makes the proxy not ready for the rest of its life.
func (r *readiness) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// problems lists why the proxy should get no new connections now; empty: none.
func (r *readiness) problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	if r.draining {
		out = append(out, "draining")
	}
	if r.keysErr != nil {
		out = append(out, fmt.Sprintf("no keys to verify tickets with: %v", r.keysErr))
	}
	for i, err := range r.errs {
		if err != nil {
			out = append(out, fmt.Sprintf("%s: store not ready: %v", r.stores[i].field, err))
		}
	}
	return out
}

// plainly leaves of a refusal what an operator needs: no claim was refused here.
func (c checked) plainly(err error) error {
	refusal, ok := errors.AsType[*fencestore.Refusal](err)
	if !ok {
		return err
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(refused.Code, classAuthorization) {
		return fmt.Errorf("the database refuses the log-in of role %q: %s; give its password in %s or a password file, or let pg_hba.conf in",
			c.role, refused.Message, variable(c.field+".store"))
	}
	return errors.New(sentences(refusal.Detail, refusal.Hint))
}

const classAuthorization = "28" // of SQLSTATE: invalid authorization specification

// variable is the environment variable that sets a key of the configuration.
func variable(key string) string {
	return "LYCHGATE_" + strings.ToUpper(strings.NewReplacer("[", "__", "]", "", ".", "__").Replace(key))
}

// sentences joins what may be complete sentences or parts of one, on one line.
func sentences(detail, hint string) string {
	detail, hint = strings.Join(strings.Fields(detail), " "), strings.Join(strings.Fields(hint), " ")
	switch {
	case detail == "", hint == "":
		return detail + hint
	case strings.HasSuffix(detail, "."):
		return detail + " " + hint
	default:
		return detail + "; " + hint
	}
}
