package primary

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fleet answers for two hosts as the test says.
type fleet struct {
	mu      sync.Mutex
	answers map[string]Answer // none: down
	asked   int
	moves   []string
}

func (f *fleet) set(host string, a *Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a == nil {
		delete(f.answers, host)
	} else {
		f.answers[host] = *a
	}
}

func (f *fleet) ask(_ context.Context, host string) (Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if a, ok := f.answers[host]; ok {
		return a, nil
	}
	return Answer{}, errors.New("is down")
}

func (f *fleet) follow(host string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moves = append(f.moves, host)
	return nil
}

func start(t *testing.T, f *fleet) *Prober {
	t.Helper()
	p, err := New(Config{Hosts: []string{"a:1", "b:2"}, Ask: f.ask, Follow: f.follow})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return p
}

// A failover ends the tenure of the old server before the side connections move, and what is asked from then on is answered with the
// new one.
func TestProberFollowsAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{answers: map[string]Answer{"a:1": {System: 7, Timeline: 1}, "b:2": {System: 7, Timeline: 1, Recovery: true}}}
		p := start(t, f)
		host, during, err := p.Current(t.Context())
		if host != "a:1" || err != nil || p.Problem() != nil {
			t.Fatalf("got %q, %v, problem %v", host, err, p.Problem())
		}
		f.set("a:1", nil)
		<-p.Doubt()
		if host, _, err = p.Current(t.Context()); host != "a:1" || err != nil || during.Err() != nil {
			t.Fatalf("while the only primary is down: got %q, %v", host, err)
		}
		if problem := p.Problem(); problem == nil || !strings.Contains(problem.Error(), "a:1: is down; b:2: is a standby") {
			t.Errorf("problem: %v", problem)
		}
		f.set("b:2", &Answer{System: 7, Timeline: 2})
		<-during.Done() // without a doubt: it looks by itself
		if cause := context.Cause(during); !strings.Contains(cause.Error(), "b:2") {
			t.Errorf("cause: %v", cause)
		}
		synctest.Wait()
		if host, _, _ = p.Current(t.Context()); host != "b:2" || strings.Join(f.moves, " ") != "a:1 b:2" {
			t.Errorf("got %q after the moves %v", host, f.moves)
		}
		f.set("a:1", &Answer{System: 7, Timeline: 1}) // the old primary is back, and thinks that it still is one
		f.set("b:2", nil)
		<-p.Doubt()
		if host, _, _ = p.Current(t.Context()); host != "b:2" {
			t.Errorf("went back to %q", host)
		}
	})
}

func TestProberWithoutAServerNamesEachHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{answers: map[string]Answer{"b:2": {Recovery: true}}}
		p := start(t, f)
		_, _, err := p.Current(t.Context())
		if _, ok := errors.AsType[*NoServerError](err); !ok || err.Error() != "a:1: is down; b:2: is a standby" {
			t.Errorf("got %v", err)
		}
	})
}

// While all is well a host is asked once a second, whatever happens; a doubt is answered at once.
func TestProberAsksSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{answers: map[string]Answer{"a:1": {System: 7, Timeline: 1}, "b:2": {System: 7, Timeline: 1, Recovery: true}}}
		p := start(t, f)
		time.Sleep(10*time.Second + time.Millisecond)
		f.mu.Lock()
		asked := f.asked
		f.mu.Unlock()
		if asked != 2*11 {
			t.Errorf("two hosts were asked %d times in ten seconds", asked)
		}
		begun := time.Now()
		<-p.Doubt()
		if took := time.Since(begun); took != 0 {
			t.Errorf("a doubt took %s", took)
		}
	})
}

func TestProberWaitsForTheFirstLook(t *testing.T) {
	p, err := New(Config{Hosts: []string{"a:1"}, Ask: (&fleet{}).ask})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := p.Current(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	ask := (&fleet{}).ask
	for name, c := range map[string]Config{
		"no host": {Ask: ask}, "nobody to ask": {Hosts: []string{"a:1"}}, "attributes": {Hosts: []string{"a:1"}, Ask: ask, Attrs: "standby"},
		"too many": {Hosts: make([]string, MaxHosts+1), Ask: ask},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
