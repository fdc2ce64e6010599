package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// fakeProcess notes the signals that it gets, and ends on some.
type fakeProcess struct {
	endsOn map[syscall.Signal]time.Duration // how long it takes to end then
	exited chan struct{}
	once   sync.Once

	mu   sync.Mutex
	code int
	got  []string // "SIGNAL at"
}

func newFakeProcess(endsOn map[syscall.Signal]time.Duration) *fakeProcess {
	return &fakeProcess{endsOn: endsOn, exited: make(chan struct{})}
}

func (p *fakeProcess) Signal(s syscall.Signal) {
	p.mu.Lock()
	p.got = append(p.got, s.String())
	p.mu.Unlock()
	if after, ends := p.endsOn[s]; ends {
		time.AfterFunc(after, func() { p.exit(exitSignalled + int(s)) })
	}
}

func (p *fakeProcess) exit(code int) {
	p.once.Do(func() {
		p.mu.Lock()
		p.code = code
		p.mu.Unlock()
		close(p.exited)
	})
}

func (p *fakeProcess) Exited() <-chan struct{} { return p.exited }

func (p *fakeProcess) Code() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

func (p *fakeProcess) signals() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.got, ", ")
}

// bubbleClock is the bubble's time.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.start) }

// running is a session in virtual time, under a lease of 10 s from a fake coordinator.
type running struct {
	server  *clienttest.Server
	process *fakeProcess
	signals chan<- os.Signal
	ended   <-chan int // the session's exit code
	said    func() string
}

func runUnderLease(t *testing.T, endsOn map[syscall.Signal]time.Duration, test func(t *testing.T, r running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newFakeProcess(endsOn)
		s := clienttest.New()
		defer s.Close()
		c, err := s.Dial(client.Config{TTL: 10 * time.Second, Clock: bubbleClock{time.Now()}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l, err := c.Acquire(t.Context(), "ledger/eu")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var lines []string
		signals, ended := make(chan os.Signal, 1), make(chan int, 1)
		run := session{
			lease: l, signals: signals,
			start: func([]string) (process, error) { return p, nil },
			say: func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, fmt.Sprintf(format, args...))
			},
		}
		go func() {
			code, err := run.run(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Error(err)
			}
			ended <- code
		}()
		test(t, running{server: s, process: p, signals: signals, ended: ended, said: func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(lines, "\n")
		}})
	})
}

func TestSessionPassesSignalsAndTheExitCode(t *testing.T) {
	var endsOn map[syscall.Signal]time.Duration
	runUnderLease(t, endsOn, func(t *testing.T, r running) {
		time.Sleep(time.Minute)
		r.signals <- syscall.SIGHUP
		r.signals <- syscall.SIGUSR1
		synctest.Wait()
		if got := r.process.signals(); got != "hangup, user defined signal 1" {
			t.Errorf("got signals %q", got)
		}
		r.process.exit(7)
		if code := <-r.ended; code != 7 {
			t.Errorf("got code %d, want 7", code)
		}
		if _, _, held := r.server.Holder("ledger/eu"); held {
			t.Error("the lock was not given back")
		}
		if r.said() != "" {
			t.Errorf("said %q, want nothing", r.said())
		}
	})
}

// Without a quorum the command is asked to end at the warning, and is gone before anybody else can be granted.
func TestSessionEndsTheCommandBeforeTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		name    string
		endsOn  map[syscall.Signal]time.Duration
		signals string
		code    int
	}{
		{
			"ends when asked",
			map[syscall.Signal]time.Duration{syscall.SIGTERM: 100 * time.Millisecond},
			"terminated, continued", 143,
		},
		{
			"has to be killed",
			map[syscall.Signal]time.Duration{syscall.SIGKILL: 0},
			"terminated, continued, killed", 137,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runUnderLease(t, tt.endsOn, func(t *testing.T, r running) {
				deadline := r.server.Deadline("ledger/eu")
				r.server.SetAvailable(false)
				<-r.process.exited
				if left := time.Until(deadline); left < 100*time.Millisecond || left > 2*time.Second {
					t.Errorf("gone %v before the server's deadline", left)
				}
				if got := r.process.signals(); got != tt.signals {
					t.Errorf("got signals %q, want %q", got, tt.signals)
				}
				if code := <-r.ended; code != tt.code {
					t.Errorf("got code %d, want %d", code, tt.code)
				}
				if !strings.Contains(r.said(), "not renewed") {
					t.Errorf("said %q", r.said())
				}
			})
		})
	}
}

// A policy may end the hold: the command is told in time, and a person why.
func TestSessionEndsWithTheHoldOfItsPolicy(t *testing.T) {
	endsOn := map[syscall.Signal]time.Duration{syscall.SIGTERM: 100 * time.Millisecond}
	runUnderLease(t, endsOn, func(t *testing.T, r running) {
		refusal := &lockpb.Refusal{Reason: lockpb.Reason_HOLD_TOO_LONG, Applied: lockpb.Applied_NO}
		r.server.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if m, ok := call.Request.(*lockpb.HeartbeatRequest); ok {
				return &lockpb.HeartbeatResponse{Beats: []*lockpb.Beat{{LeaseId: m.GetLeaseIds()[0], Refusal: refusal}}}, nil
			}
			return next(ctx)
		})
		begin := time.Now()
		<-r.process.exited
		if held := time.Since(begin); held < 7*time.Second || held > 9*time.Second {
			t.Errorf("ended after %v of 10s", held)
		}
		if code := <-r.ended; code != 143 || !strings.Contains(r.said(), "ledger/eu has been held as long as its policy allows") {
			t.Errorf("code %d, said %q", code, r.said())
		}
	})
}

// A quorum that comes back after the warning gives a command that is ending its time to do so.
func TestSessionWaitsForACommandThatEndsUnderARenewedLease(t *testing.T) {
	endsOn := map[syscall.Signal]time.Duration{syscall.SIGTERM: 40 * time.Second, syscall.SIGKILL: 0}
	runUnderLease(t, endsOn, func(t *testing.T, r running) {
		r.server.SetAvailable(false)
		time.Sleep(8*time.Second + 200*time.Millisecond) // the warning came
		r.server.SetAvailable(true)
		if code := <-r.ended; code != 143 || r.process.signals() != "terminated, continued" {
			t.Errorf("got code %d after %s, want 143 without a kill", code, r.process.signals())
		}
	})
}

// The lock was broken: somebody else may have it already.
func TestSessionKillsAtOnceWhenTheLeaseHasEnded(t *testing.T) {
	endsOn := map[syscall.Signal]time.Duration{syscall.SIGKILL: 0, syscall.SIGTERM: time.Second}
	runUnderLease(t, endsOn, func(t *testing.T, r running) {
		r.server.Expire("ledger/eu")
		if code := <-r.ended; code != 137 {
			t.Errorf("got code %d after %s, want 137", code, r.process.signals())
		}
		if !strings.Contains(r.said(), "lost") {
			t.Errorf("said %q", r.said())
		}
	})
}
