// Package history judges what clients of a lock saw, without knowing how the lock is made: whether there is an order of all
// that happened, in which each step lies between its call and its answer, and which a lock with fencing tokens could have had.
package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what a client did.
type Kind string

// Kinds of steps.
const (
	Acquire Kind = "acquire" // a lease was granted, with Token; 0: nobody knows whether it was
	End     Kind = "end"     // a lease ended, by its release or, with an answer that never came, by itself
	Look    Kind = "look"    // somebody saw who holds it: Token; 0: nobody
)

// Forever is the Return of a step that may still happen.
const Forever = time.Duration(math.MaxInt64)

// Step is one thing that happened, at some moment between Call and Return, both on one clock that never goes back.
type Step struct {
	Kind     Kind
	Resource string
	Lease    string // names the lease in an Acquire and its End; no other lease has it
	Client   int    // for the picture
	Shared   bool
	Token    uint64
	Call     time.Duration
	Return   time.Duration
}

func (s Step) String() string {
	var what string
	switch {
	case s.Kind == Look && s.Token == 0:
		what = "sees it free"
	case s.Kind == Look:
		what = fmt.Sprintf("sees the holder's token %d", s.Token)
	case s.Kind == End:
		what = "ends " + s.Lease
	case s.Token == 0:
		what = "asks, and learns nothing"
	case s.Shared:
		what = fmt.Sprintf("shares as %s with token %d", s.Lease, s.Token)
	default:
		what = fmt.Sprintf("takes as %s with token %d", s.Lease, s.Token)
	}
	until := "for ever"
	if s.Return != Forever {
		until = s.Return.String()
	}
	return fmt.Sprintf("client %d %s %s, between %v and %s", s.Client, s.Resource, what, s.Call, until)
}

// held is what a lock is in at one moment. It is compared as a whole.
type held struct {
	token  uint64 // the largest so far
	shared bool
	leases string // sorted, each followed by a comma
}

func (h held) add(lease string) held {
	all := append(strings.Split(h.leases, ","), lease)
	slices.Sort(all)
	h.leases = strings.TrimPrefix(strings.Join(all, ","), ",") + ","
	h.leases = strings.ReplaceAll(h.leases, ",,", ",")
	return h
}

func (h held) without(lease string) held {
	var rest strings.Builder
	for name := range strings.SplitSeq(h.leases, ",") {
		if name != "" && name != lease {
			rest.WriteString(name + ",")
		}
	}
	h.leases = rest.String()
	return h
}

// next is the lock: whether it may take a step, and what it is in then.
func (h held) next(s Step) (bool, held) {
	switch s.Kind {
	case Acquire:
		free := h.leases == ""
		joins := s.Shared && h.shared && !free && s.Token == h.token
		if !joins && (!free || s.Token <= h.token) {
			return false, h
		}
		return true, held{token: s.Token, shared: s.Shared, leases: h.leases}.add(s.Lease)
	case End:
		return true, h.without(s.Lease)
	case Look:
		if s.Token == 0 {
			return h.leases == "", h
		}
		return h.leases != "" && s.Token == h.token, h
	}
	return false, h
}

func model() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return held{} },
		Step:              func(state, in, _ any) (bool, any) { return state.(held).next(in.(Step)) },
		DescribeOperation: func(in, _ any) string { return in.(Step).String() },
		DescribeState: func(state any) string {
			h := state.(held)
			return fmt.Sprintf("token %d, held by %q", h.token, h.leases)
		},
	}
}

// Failure is a resource whose history no lock can have had.
type Failure struct {
	Resource string
	Smallest []Step // of it, and just as impossible: without any one of them a lock could have done it
	Why      string
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Resource, f.Why)
	for _, s := range f.Smallest {
		fmt.Fprintf(&b, "\n  %v", s)
	}
	return b.String()
}

// Check judges each resource by itself, for as long as bound. nil: a lock could have done all of it. An error is a *Failure,
// also where the bound was not enough.
func Check(steps []Step, bound time.Duration) []error {
	parts := map[string][]Step{}
	var names []string
	for _, s := range steps {
		if parts[s.Resource] == nil {
			names = append(names, s.Resource)
		}
		parts[s.Resource] = append(parts[s.Resource], s)
	}
	slices.Sort(names)
	var failures []error
	for _, name := range names {
		part, err := complete(parts[name])
		if err != nil {
			failures = append(failures, err)
			continue
		}
		switch judge(part, bound) {
		case porcupine.Illegal:
			failures = append(failures, &Failure{name, shrink(part, bound), "no lock can have done this"})
		case porcupine.Unknown:
			failures = append(failures, &Failure{name, nil, fmt.Sprintf("%d steps were not judged within %v", len(part), bound)})
		case porcupine.Ok:
		}
	}
	return failures
}

func judge(steps []Step, bound time.Duration) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		operations[i] = porcupine.Operation{ClientId: s.Client, Input: s, Call: int64(s.Call), Return: int64(s.Return)}
	}
	return porcupine.CheckOperationsTimeout(model(), operations, bound)
}

// complete gives a token that somebody saw, and nobody was told, to an acquire of which nobody knows how it ended.
func complete(steps []Step) ([]Step, error) {
	told := map[uint64]bool{0: true}
	var open, whole []Step
	for _, s := range steps {
		switch {
		case s.Kind != Acquire:
			whole = append(whole, s)
		case s.Token == 0:
			open = append(open, s)
		default:
			told[s.Token] = true
			whole = append(whole, s)
		}
	}
	seen := map[uint64]Step{}
	for _, s := range whole {
		if first, ok := seen[s.Token]; s.Kind == Look && !told[s.Token] && (!ok || s.Return < first.Return) {
			seen[s.Token] = s
		}
	}
	slices.SortFunc(open, func(a, b Step) int { return int(a.Call - b.Call) })
	for token, look := range seen {
		at := slices.IndexFunc(open, func(s Step) bool { return s.Call <= look.Return })
		if at < 0 {
			return nil, &Failure{look.Resource, []Step{look}, "nobody can have been granted this token"}
		}
		// Whose it was cannot be told, so it may be anybody's who asked before.
		grant := Step{
			Kind: Acquire, Resource: look.Resource, Lease: fmt.Sprintf("unknown-%d", token), Client: open[at].Client,
			Shared: open[at].Shared, Token: token, Call: open[at].Call, Return: look.Return,
		}
		end := grant
		end.Kind, end.Return = End, Forever
		whole = append(whole, grant, end)
	}
	return whole, nil
}

// shrink takes away what is not needed for the history to be impossible. A lease goes with its end.
func shrink(steps []Step, bound time.Duration) []Step {
	deadline := time.Now().Add(bound)
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(steps) && time.Now().Before(deadline); {
			less := without(steps, steps[at:at+size])
			if len(less) < len(steps) && judge(less, bound/10) == porcupine.Illegal {
				steps = less
			} else {
				at += size
			}
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return int(a.Call - b.Call) })
	return steps
}

func without(steps, gone []Step) []Step {
	leases, looks := map[string]bool{}, map[Step]bool{}
	for _, s := range gone {
		if s.Kind == Look {
			looks[s] = true
		} else {
			leases[s.Lease] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
		return looks[s] || s.Kind != Look && leases[s.Lease]
	})
}
