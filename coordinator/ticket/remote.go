package ticket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// RemoteConfig says where the keys come from. Zero durations and sizes take the default named beside them.
type RemoteConfig struct {
	// URLs are the HTTP addresses of coordinators, such as "http://10.0.0.1:7601"; one is enough, more are better.
	URLs    []string
	Cluster string       // the cluster expected; empty means: the first one that answers, from then on
	Client  *http.Client // default: one of its own

	MinInterval  time.Duration // between two fetches, whoever asks: 1 s
	MaxAge       time.Duration // after which the keys are fetched again in the background: 1 min
	FetchTimeout time.Duration // of one fetch over all URLs: 5 s
	MaxVerdicts  int           // tickets whose verdict is kept: 10,000
}

// Remote verifies tickets with the keys that coordinators publish. It is safe for concurrent use.
//
// A ticket that verified is answered from memory. A ticket with a key that is not known waits for one fetch that
// began after it came; all who wait share that fetch, and two fetches are MinInterval apart, so that rubbish costs
// the coordinators next to nothing. While no coordinator answers, whatever the last keys verify goes on.
type Remote struct {
	config   RemoteConfig
	verdicts *verdicts

	mu        sync.Mutex
	document  Document // Ring is nil before the first fetch that worked
	version   uint64   // counts the changes of document.Ring
	begun     uint64   // counts the fetches
	lastBegin time.Time
	lastError error
	running   chan struct{} // closed when the running fetch ends; nil if none runs
	closed    context.Context
	close     context.CancelFunc
}

// NewRemote checks the configuration and does no I/O.
func NewRemote(config RemoteConfig) (*Remote, error) {
	if len(config.URLs) == 0 {
		return nil, errors.New("ticket keys: no coordinator URL")
	}
	urls := make([]string, 0, len(config.URLs))
	for _, text := range config.URLs {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("ticket keys: %q is not an http or https URL", text)
		}
		urls = append(urls, strings.TrimSuffix(text, "/")+Path)
	}
	config.URLs = urls
	if config.Cluster != "" && !validCluster(config.Cluster) {
		return nil, fmt.Errorf("ticket keys: cluster %q is not 1 to %d letters, digits and ._-", config.Cluster, MaxCluster)
	}
	setDefault(&config.MinInterval, time.Second)
	setDefault(&config.MaxAge, time.Minute)
	setDefault(&config.FetchTimeout, 5*time.Second)
	setDefault(&config.MaxVerdicts, 10_000)
	if config.Client == nil {
		config.Client = &http.Client{}
	}
	r := &Remote{config: config, verdicts: newVerdicts(config.MaxVerdicts)}
	r.closed, r.close = context.WithCancel(context.Background())
	return r, nil
}

// errClosed is the error of a fetch after Close.
var errClosed = errors.New("fetch keys: closed")

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close stops a fetch that runs and waits for it. Verify goes on with the keys that are there.
func (r *Remote) Close() {
	r.close()
	r.mu.Lock()
	running := r.running
	r.mu.Unlock()
	if running != nil {
		<-running
	}
}

// Cluster is the name of the cluster whose tickets are accepted; empty while it is not known.
func (r *Remote) Cluster() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.document.Ring == nil {
		return r.config.Cluster
	}
	return r.document.Ring.cluster
}

// Version counts the changes of the key ring; 0 before the first fetch that worked.
func (r *Remote) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// Refresh fetches the keys now, or joins a fetch that begins after the call. A start-up calls it to learn early
// whether the coordinators can be reached; Verify does not need it.
func (r *Remote) Refresh(ctx context.Context) error { return r.await(ctx, "") }

// Verify checks a ticket and returns what it says. It may block for one fetch, at most until ctx is done.
// Every error is an *Error; Unavailable is the only reason after which the same ticket may be tried again.
func (r *Remote) Verify(ctx context.Context, raw string) (Claims, error) {
	ring, version := r.ring()
	if claims, ok := r.verdicts.get(raw, version); ok {
		return claims, nil
	}
	t, err := parse(raw)
	if err != nil {
		return Claims{}, err
	}
	if ring == nil || (ring.cluster == t.claims.Cluster && !ring.Has(t.keyID)) {
		fetchErr := r.await(ctx, t.keyID)
		ring, version = r.ring()
		if fetchErr != nil && (ring == nil || !ring.Has(t.keyID)) {
			return Claims{}, &Error{Reason: Unavailable, Err: fetchErr}
		}
	}
	claims, err := ring.verify(t)
	if err == nil {
		r.verdicts.put(raw, version, claims)
	}
	return claims, err
}

// ring returns the keys that are there, and starts a fetch behind the caller's back when they have become old.
func (r *Remote) ring() (*KeyRing, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.document.Ring != nil && r.running == nil && time.Since(r.lastBegin) > r.config.MaxAge {
		r.begin("")
	}
	return r.document.Ring, r.version
}

// await returns when a fetch that began after the call has ended, with that fetch's error.
func (r *Remote) await(ctx context.Context, keyID string) error {
	r.mu.Lock()
	earlier := r.begun
	r.mu.Unlock()
	for {
		done, pause := r.join(earlier, keyID)
		var timer <-chan time.Time
		switch {
		case done == nil && pause == 0:
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.lastError
		case pause > 0:
			timer = time.After(pause)
		}
		select {
		case <-done:
		case <-timer:
		case <-ctx.Done():
			return fmt.Errorf("fetch keys: %w", context.Cause(ctx))
		case <-r.closed.Done():
			return errClosed
		}
	}
}

// join decides what a caller does next who asked when so many fetches had begun: wait for a running fetch (done),
// wait for the next one to be allowed (pause), or neither, since a later fetch has ended.
func (r *Remote) join(earlier uint64, keyID string) (done <-chan struct{}, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, 0
	}
	if r.begun > earlier {
		return nil, 0
	}
	if wait := r.config.MinInterval - time.Since(r.lastBegin); !r.lastBegin.IsZero() && wait > 0 {
		return nil, wait
	}
	r.begin(keyID)
	return r.running, 0
}

// begin starts a fetch. The caller holds r.mu and has seen that none runs. The goroutine ends within
// FetchTimeout, or when Close is called, which waits for it.
func (r *Remote) begin(keyID string) {
	r.lastBegin = time.Now()
	r.begun++
	if r.closed.Err() != nil {
		r.lastError = errClosed
		return
	}
	done := make(chan struct{})
	r.running = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(r.closed, r.config.FetchTimeout)
		defer cancel()
		newest, err := r.sweep(ctx, keyID)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.adopt(newest)
		r.lastError, r.running = err, nil
	}()
}

// adopt replaces the keys by newer ones. The caller holds r.mu.
func (r *Remote) adopt(newest Document) {
	if newest.Ring == nil || (r.document.Ring != nil && newest.olderThan(r.document)) {
		return
	}
	if r.document.Ring == nil || !sameKeys(r.document.Ring, newest.Ring) {
		r.version++
	}
	r.document = newest
}

func sameKeys(a, b *KeyRing) bool {
	if len(a.byID) != len(b.byID) {
		return false
	}
	for id := range a.byID {
		if !b.Has(id) {
			return false
		}
	}
	return true
}
