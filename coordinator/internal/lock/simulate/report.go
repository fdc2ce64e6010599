package simulate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// mustMeet is what a run of many seeds has to meet, or it shows nothing.
var mustMeet = []string{
	"a caller went away",
	"a cancel came before its acquire",
	"a claim waited for a takeover",
	"a client let its lease run out",
	"a deposed leader answered: unknown",
	"a holder heard that its lease had ended",
	"a late grant was confirmed",
	"a late grant was confirmed too late",
	"a lease expired",
	"a lock was granted at once",
	"a paused client wrote after its deadline",
	"a replica crashed right after a snapshot",
	"a replica was restored from a snapshot",
	"a replica was sent a snapshot",
	"a retry was answered: ended",
	"a session joined under the floor",
	"a store refused a stale token",
	"a takeover came to its deadline",
	"a takeover ended a session",
	"a takeover raised the floor",
	"a wait was over without a grant",
	"a waiter was granted",
	"a write came to an end with its session",
	"a write took effect",
	"an acquire was sent again",
	"an answer came too late",
	"an entry outlived its leader",
	"an entry was lost with its leader",
}

// Total sums runs up. The zero value is of none.
type Total struct {
	Seeds, Events, Operations, Entries int
	Span                               time.Duration
	faults, met                        map[string]int
}

// Add counts a run.
func (t *Total) Add(o Outcome) {
	if t.met == nil {
		t.faults, t.met = make(map[string]int), make(map[string]int)
	}
	t.Seeds++
	t.Events += o.Events
	t.Operations += o.Operations
	t.Entries += o.Entries
	t.Span += o.Span
	for name, n := range o.Faults {
		t.faults[name] += n
	}
	for name, n := range o.Met {
		t.met[name] += n
	}
}

// Line is the sum in one line.
func (t *Total) Line() string {
	return fmt.Sprintf("%.0f hours simulated, %d seeds, %d operations, %d log entries, %d events",
		t.Span.Hours(), t.Seeds, t.Operations, t.Entries, t.Events)
}

// Print tells all.
func (t *Total) Print(to io.Writer) {
	fmt.Fprintln(to, t.Line())
	for _, counts := range []map[string]int{t.faults, t.met} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(to, "%12d  %s\n", counts[name], name)
		}
	}
}

// Enough says what too little was done of.
func (t *Total) Enough() error {
	var errs []error
	if least := int(t.Span.Hours()) * 100; t.Operations < least {
		errs = append(errs, fmt.Errorf("%d operations in %.0f hours, the least is %d", t.Operations, t.Span.Hours(), least))
	}
	for _, name := range mustMeet {
		if t.met[name] == 0 {
			errs = append(errs, errors.New("never met: "+name))
		}
	}
	for _, name := range mustStrike {
		if t.faults[name] == 0 {
			errs = append(errs, errors.New("never struck: "+name))
		}
	}
	return errors.Join(errs...)
}

var mustStrike = []string{
	"a client crashed", "a client was paused", "a disk stalled", "a lock was broken", "a machine was suspended",
	"a message was delayed", "a message was doubled", "a message was lost", "a partition", "a proxy crashed",
	"a recovery without a majority", "a replica crashed", "a replica was frozen", "a session was stuck",
	"a store crashed", "a store's answer was lost", "leadership moved",
}

// Explain makes a failing run smaller for as long as it fails by the same invariant, and tells the end of its story.
func Explain(cfg Config, o Outcome) string {
	first := kindOf(o.Err)
	fails := func(c Config) bool {
		o := Run(c)
		return o.Err != nil && kindOf(o.Err) == first
	}
	if c := cfg; o.Failed < c.Span {
		c.Span = o.Failed
		if fails(c) {
			cfg = c
		}
	}
	for i := range faultNames {
		c := cfg
		if c.Without |= 1 << i; o.Kinds&(1<<i) != 0 && fails(c) {
			cfg = c
		}
	}
	for n := 1; n < o.Clients; n++ {
		c := cfg
		if c.Clients = n; fails(c) {
			cfg = c
			break
		}
	}
	for span := time.Minute; span < cfg.Span; span *= 2 {
		c := cfg
		if c.Span = span; fails(c) {
			cfg = c
			break
		}
	}
	cfg.Tell = true
	small := Run(cfg)
	return fmt.Sprintf("%v\nmade smaller: %v of faults, %d clients, faults: %v\n%v at %v\n%s", o.Err, cfg.Span, small.Clients,
		small.Kinds, small.Err, small.Failed, strings.Join(small.Story, "\n"))
}

// kindOf is the beginning of what an error says.
func kindOf(err error) string {
	text := err.Error()
	return text[:min(len(text), len("invariant 10"))]
}
