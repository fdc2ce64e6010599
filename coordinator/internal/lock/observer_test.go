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
}

func newObserver(config lock.Config) *observer {
	return &observer{Machine: lock.New(), checker: invariant.New(locktest.Options(config))}
}

// step applies one entry. The error is the checker's, or the machine's own inconsistency.
func (o *observer) step(e lock.Entry) ([]lock.Result, []lock.Event, error) {
	o.index++
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
	return results, events, o.Check()
}
