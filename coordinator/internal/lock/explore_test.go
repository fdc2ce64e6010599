package lock_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	chaos "github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/explore"
)

var (
	exploreStates  = flag.Int("explore.states", 250_000, "states of all scenarios to visit")
	exploreWorkers = flag.Int("explore.workers", 1, "workers of an exploration")
	exploreOnly    = flag.String("explore.scenario", "", "explore this scenario alone")
	explorePath    = flag.String("explore.path", "", "take these steps of the scenario, and tell them")
)

// machines uses the memory of one machine again and again.
func machines() explore.Machines {
	return explore.Machines{
		New: func(old *lock.Machine) *lock.Machine {
			if old == nil {
				return lock.New()
			}
			old.Reuse()
			return old
		},
		Restore: lock.RestoreInto,
		Look:    (*lock.Machine).Look,
		Check:   func(m *lock.Machine) error { return errors.Join(m.Check(), m.CheckAcyclic()) },
	}
}

// TestExplore visits the states of each scenario, as many as the flag says. make explore visits more. The race detector,
// which has nothing to find in one goroutine, is let look at a tenth.
func TestExplore(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // what lives is small but for the set of states
	shares := 0
	for _, s := range explore.Scenarios() {
		shares += s.Share
	}
	if shares != 100 {
		t.Errorf("the scenarios' shares are %d in a hundred", shares)
	}
	for _, s := range explore.Scenarios() {
		if *exploreOnly != "" && *exploreOnly != s.Name {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			states := *exploreStates / 100 * s.Share
			if raceDetector {
				states /= 10
			}
			system := func() chaos.System { return explore.New(s, machines()) }
			if *explorePath != "" {
				story, err := chaos.Retell(system(), *explorePath)
				if err != nil {
					t.Fatal(err)
				}
				t.Log("\n" + story)
				return
			}
			r := chaos.Run(chaos.Config{
				Name: s.Name, System: system, States: states, Workers: *exploreWorkers,
				Progress: func(r *chaos.Report) { fmt.Fprintln(os.Stderr, r.Line()) }, Every: 5 * time.Second,
			})
			if r.Failure != nil {
				if errors.Is(r.Failure.Err, chaos.ErrTwoStates) {
					t.Log("before the last step one of the two machines was restored from a snapshot, the other took the whole way")
				}
				t.Fatal(r.Failure.Told(system(), fmt.Sprintf("go test ./coordinator/internal/lock -run TestExplore -v -explore.scenario %q -explore.path", s.Name)))
			}
			r.Print(os.Stdout)
			if err := r.Enough(states, mustMeet(s)); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustMeet(s explore.Scenario) []string {
	switch {
	case raceDetector:
		return nil
	case *exploreStates >= explore.DeepStates:
		return slices.Concat(s.Must, s.Deep)
	}
	return s.Must
}
