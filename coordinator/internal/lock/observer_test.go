package lock_test

import (
	"fmt"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
)

// observer applies entries to a machine and has a checker judge what comes out.
type observer struct {
	*lock.Machine
	checker *invariant.Checker
	index   uint64
	cyclic  bool // it was of version 1, so an owner may wait for itself
}

func newObserver(config lock.Config) *observer {
	return &observer{Machine: lock.New(), checker: invariant.New(locktest.Options(config))}
}

// step applies one entry. The error is the checker's, or the machine's own inconsistency.
func (o *observer) step(e lock.Entry) ([]lock.Result, []lock.Event, error) {
	o.index++
	o.cyclic = o.cyclic || o.Info().Initialised && o.Info().Version < 2
	results, events := o.Apply(o.index, e)
	if len(results) != len(e.Commands) {
		return nil, nil, fmt.Errorf("%d results for %d commands", len(results), len(e.Commands))
	}
	info := o.Info()
	steps := locktest.Steps(locktest.Applied{
		Now: info.Now, Config: info.Config, Commands: e.Commands, Results: results, Events: events,
	})
	for _, step := range steps {
		if err := o.checker.Observe(step); err != nil {
			return results, events, err
		}
	}
	if err := o.Check(); err != nil || o.cyclic {
		return results, events, err
	}
	if err := o.CheckAcyclic(); err != nil {
		return results, events, fmt.Errorf("%w: %+v -> %+v", err, e, results)
	}
	return results, events, nil
}
