package locktest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func config() lock.Config {
	return lock.Config{
		DefaultTTL: 10 * time.Second, MinTTL: 2 * time.Second, MaxTTL: time.Minute, MaxWait: time.Minute,
		RetryWindow: time.Minute, Grace: 10 * time.Second, ClaimWindow: 5 * time.Second, HeadStart: time.Second,
		MaxWaiters: 10, MaxRequests: 10, MaxExpiries: 10,
	}
}

func id(n byte) lease.ID { return lease.NewID(0, [14]byte{n}) }

// acquire is request n of client n; its lease will be id(n).
func acquire(n byte) lock.Acquire {
	return lock.Acquire{
		Identity: "me", Client: lease.ClientID(fmt.Sprint(n)), Request: lease.RequestID(fmt.Sprint(n)), Resource: "a",
		Mode: lease.Exclusive, Wait: 30 * time.Second, Lease: id(n), Call: uint64(n),
	}
}

func cancel(n byte) lock.Cancel {
	a := acquire(n)
	return lock.Cancel{Identity: a.Identity, Client: a.Client, Request: a.Request}
}

func renew(n byte) lock.Renew     { return lock.Renew{Identity: "me", Lease: id(n)} }
func release(n byte) lock.Release { return lock.Release{Identity: "me", Lease: id(n)} }

// machine is one with its log.
type machine struct {
	*lock.Machine
	index uint64
}

func newMachine() *machine {
	m := &machine{Machine: lock.New()}
	m.apply(0, lock.Init{Cluster: "c", Version: 1, Config: config()})
	return m
}

func (m *machine) apply(at time.Duration, commands ...lock.Command) locktest.Applied {
	m.index++
	results, events := m.Apply(m.index, lock.Entry{Now: lock.LeaseTime(at), Commands: commands})
	info := m.Info()
	return locktest.Applied{Now: info.Now, Config: info.Config, Commands: commands, Results: results, Events: events}
}

// short names a step without the package.
func short(e invariant.Event) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", e), "invariant.")
	switch e := e.(type) {
	case invariant.Reported:
		return name + map[invariant.State]string{invariant.Held: " held", invariant.Waiting: " waiting", invariant.Over: " over"}[e.State]
	case invariant.Ended:
		return fmt.Sprintf("%s by %q", name, e.By)
	}
	return name
}

func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		before, entry []lock.Command
		want          string
	}{
		"grant":                       {nil, []lock.Command{acquire(1)}, "Granted, Reported held"},
		"grant ended at once":         {nil, []lock.Command{acquire(1), release(1)}, `Granted, Ended by "me"`},
		"grant renewed at once":       {nil, []lock.Command{acquire(1), renew(1)}, "Granted, Reported held, Renewed"},
		"renewed and ended at once":   {nil, []lock.Command{acquire(1), renew(1), release(1)}, `Granted, Ended by "me"`},
		"renewals run first":          {[]lock.Command{acquire(1)}, []lock.Command{release(1), renew(1)}, `Renewed, Ended by "me"`},
		"cancelled":                   {[]lock.Command{acquire(1)}, []lock.Command{cancel(1)}, `Ended by "me"`},
		"queued":                      {[]lock.Command{acquire(1)}, []lock.Command{acquire(2)}, "Queued, Reported waiting"},
		"queued and granted at once":  {[]lock.Command{acquire(1)}, []lock.Command{acquire(2), release(1)}, `Queued, Ended by "me", Granted`},
		"queued and cancelled":        {[]lock.Command{acquire(1)}, []lock.Command{acquire(2), cancel(2)}, "Queued, Unqueued"},
		"retry of what is over":       {[]lock.Command{acquire(1), release(1)}, []lock.Command{acquire(1)}, "Reported over"},
		"cancel of what never came":   {nil, []lock.Command{cancel(1), acquire(1)}, "Forestalled, Reported over"},
		"broken":                      {[]lock.Command{acquire(1)}, []lock.Command{lock.Break{Identity: "admin", Resource: "a"}}, `Ended by "", TokenIssued`},
		"a leader and its lost calls": {[]lock.Command{acquire(1), acquire(2)}, []lock.Command{lock.NewLeader{Node: "n1", Term: 2}}, "Elected"},
		"nothing to judge":            {nil, []lock.Command{lock.Tick{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, checker := newMachine(), invariant.New(locktest.Options(config()))
			var got []string
			for i, commands := range [][]lock.Command{c.before, c.entry} {
				for _, step := range locktest.Steps(m.apply(time.Duration(i), commands...)) {
					if err := checker.Observe(step); err != nil {
						t.Error(err)
					}
					if i == 1 {
						got = append(got, short(step))
					}
				}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got %s, want %s", strings.Join(got, ", "), c.want)
			}
		})
	}
}

// What a machine must not do reaches the judge: outcomes that are doctored are found.
func TestStepsKeepWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name      string
		invariant int
		last      lock.Command
		doctor    func(*locktest.Applied)
	}{
		{"expired early", 9, lock.Tick{}, func(a *locktest.Applied) {
			a.Events = []lock.Event{lock.LeaseEnded{Holder: lock.Holder{Hash: id(1).Hash(), Token: 1}, Cause: lock.EndExpired}}
		}},
		{"granted twice", 1, lock.Tick{}, func(a *locktest.Applied) {
			a.Events = []lock.Event{lock.LeaseGranted{Grant: lock.Grant{Resource: "a", Lease: id(2), Token: 2, Mode: lease.Exclusive}}}
		}},
		{"another's release", 5, release(1), func(a *locktest.Applied) {
			a.Commands = []lock.Command{lock.Release{Identity: "other", Lease: id(1)}}
		}},
		{"release of another lease", 5, release(1), func(a *locktest.Applied) {
			a.Commands = []lock.Command{lock.Release{Identity: "me", Lease: id(2)}}
		}},
		{"renewal of another lease", 5, renew(1), func(a *locktest.Applied) {
			a.Commands = []lock.Command{lock.Renew{Identity: "me", Lease: id(2)}}
		}},
		{"renewed for another", 5, renew(1), func(a *locktest.Applied) {
			a.Commands = []lock.Command{lock.Renew{Identity: "other", Lease: id(1)}}
		}},
		{"told to be over", 7, acquire(1), func(a *locktest.Applied) {
			a.Results = []lock.Result{lock.Refused{Reason: lock.ReasonRequestEnded}}
		}},
		{"told another token", 7, acquire(1), func(a *locktest.Applied) {
			a.Results = []lock.Result{lock.Granted{Grant: lock.Grant{Lease: id(1), Token: 2}}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, checker := newMachine(), invariant.New(locktest.Options(config()))
			first, last := m.apply(0, acquire(1)), m.apply(1, c.last)
			c.doctor(&last)
			var err error
			for _, step := range append(locktest.Steps(first), locktest.Steps(last)...) {
				if err == nil {
					err = checker.Observe(step)
				}
			}
			var violation *invariant.Violation
			if !errors.As(err, &violation) || violation.Invariant != c.invariant {
				t.Errorf("got %v, want a violation of invariant %d", err, c.invariant)
			}
		})
	}
}
