package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lychgate/lychgate/chaos/soak/judge"
)

// record is everything that was seen. It grows with the run: a million attempts take about 200 MB.
type record struct {
	mu        sync.Mutex
	history   judge.History
	codes     map[string]int // refusals, of sessions and of writes
	unknown   int
	acked     int
	takeovers int // first contacts under a token that nobody had shown before
	faults    []error
}

func newRecord() *record {
	return &record{history: judge.History{Attempts: map[string]judge.Attempt{}}, codes: map[string]int{}}
}

// fault notes what should not be. It is bounded: the first hundred count.
func (r *record) fault(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) < 100 {
		r.faults = append(r.faults, err)
	}
}

// take reads what a client tells up to the end of the process, which may come in the middle of a line.
func (r *record) take(from *bufio.Reader) {
	for {
		line, err := from.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.fault(fmt.Errorf("a client: %w", err))
			}
			return
		}
		var t told
		if err := json.Unmarshal(line, &t); err != nil {
			r.fault(fmt.Errorf("a client says %q: %w", line, err))
			return
		}
		r.note(t)
	}
}

var outcomes = map[string]judge.Outcome{"acknowledged": judge.Acknowledged, "refused": judge.Refused, "unknown": judge.Unknown}

func (r *record) note(t told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Code != "" {
		r.codes[t.Code]++
	}
	switch t.Kind {
	case begun:
		r.history.Attempts[t.Op] = judge.Attempt{Resource: t.Resource, Token: t.Token}
		r.unknown++
	case ended:
		outcome := outcomes[t.Outcome]
		r.history.Attempts[t.Op] = judge.Attempt{Resource: t.Resource, Token: t.Token, Outcome: outcome}
		if outcome != judge.Unknown {
			r.unknown--
		}
		if outcome == judge.Acknowledged {
			r.acked++
		}
	case contact:
		r.history.Contacts = append(r.history.Contacts, judge.Contact{Resource: t.Resource, Token: t.Token, Seen: t.Seen})
		if t.Fresh {
			r.takeovers++
		}
	case refused:
	}
}

func (r *record) floors(read []judge.Floor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Floors = append(r.history.Floors, read...)
}

// line is where the run stands.
func (r *record) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(r.codes)) {
		codes = append(codes, fmt.Sprintf("%s=%d", code, r.codes[code]))
	}
	return fmt.Sprintf("commits=%d unknown=%d attempts=%d contacts=%d takeovers=%d %s",
		r.acked, r.unknown, len(r.history.Attempts), len(r.history.Contacts), r.takeovers, strings.Join(codes, " "))
}
