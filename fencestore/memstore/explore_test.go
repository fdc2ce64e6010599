package memstore_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
)

var (
	exploreStates = flag.Int("explore.states", 3000, "states of the store to visit; 0: all there are")
	explorePath   = flag.String("explore.path", "", "take these steps, and tell them")
)

// TestExplore visits the states that four sessions and three tokens can bring a store to, with takeovers that stand still
// between any two of their steps, and holds the store against the model that the explorer of the lock machine uses.
func TestExplore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := func() explore.System { return &bench{met: make(map[string]int)} }
		if *explorePath != "" {
			story, err := explore.Retell(system(), *explorePath)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + story)
			return
		}
		last := &bench{}
		r := explore.Run(explore.Config{Name: "store in memory", States: *exploreStates, System: func() explore.System {
			last = system().(*bench)
			return last
		}})
		last.clear()
		if r.Failure != nil {
			t.Fatal(r.Failure.Told(system(), "go test ./fencestore/memstore -run TestExplore -v -explore.path"))
		}
		r.Print(os.Stdout)
		if err := r.Enough(cmp.Or(*exploreStates, allStates), []string{"stale", "joined", "raised", "timed out", "raised itself", "left during a takeover", "waited for a takeover", "left while it waited for a takeover"}); err != nil {
			t.Error(err)
		}
	})
}

// What can happen. The argument is a session and a token, or a resource.
const (
	open    = iota // a session that has ended begins again
	leave          // a session ends by itself
	bind           // a session claims the resource that it is for
	raise          // a claim without a session
	gone           // a takeover's session is confirmed gone
	notGone        // it is not, in time
	unbind         // a session is unbound, idle
)

const (
	benchSessions = 4
	benchTokens   = 3
	allStates     = 71_776
)

var benchResources = [fence.Resources]string{"r0", "r1"}

// bench is a real store and the model of it.
type bench struct {
	store   *memstore.Store
	model   fence.Store
	alive   [benchSessions]bool
	started [benchSessions]int64
	ending  [benchSessions]chan error   // of a takeover that waits for the session to be gone
	calls   [fence.Resources]chan error // of the call that has the resource's lock
	waits   [fence.Resources]call       // for that
	cancel  context.CancelFunc
	ctx     context.Context
	checker *invariant.Checker
	taken   []explore.Step
	kept    []explore.Step
	repeat  bool
	met     map[string]int
}

// call is one that has not been answered.
type call struct {
	session uint8
	started int64
	token   lease.Token
	done    chan error // nil: there is none
}

// resourceOf is what a session is for: the model's sessions are bound to one resource.
func resourceOf(session uint8) uint8 { return session / 3 }

func (b *bench) session(i uint8) fencestore.Session {
	return fencestore.Session{PID: int64(i) + 1, Started: b.started[i]}
}

func (b *bench) index(s fencestore.Session) uint8 { return uint8(s.PID - 1) }

// clear lets every call come to its end.
func (b *bench) clear() {
	if b.cancel != nil {
		b.cancel()
		synctest.Wait()
	}
}

func (b *bench) Reset() {
	b.clear()
	*b = bench{met: b.met, kept: b.kept, taken: b.taken[:0], repeat: true}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.checker = invariant.New(invariant.Options{})
	b.alive = [benchSessions]bool{true, true, true, true}
	b.store = memstore.New(memstore.Config{
		Alive: func(s fencestore.Session) bool { i := b.index(s); return b.alive[i] && b.started[i] == s.Started },
		End:   b.end,
	})
}

// end is the store's: the session is gone when a step says so.
func (b *bench) end(ctx context.Context, s fencestore.Session) error {
	i := b.index(s)
	b.ending[i] = make(chan error, 1)
	select {
	case err := <-b.ending[i]:
		return err
	case <-b.ctx.Done(): // a takeover's own deadline comes as a step
		return ctx.Err()
	}
}

func (b *bench) Keep() { b.kept, b.repeat = slices.Clone(b.taken), false }

func (b *bench) Back() {
	b.Reset()
	for _, s := range b.kept {
		if err := b.Take(s); err != nil {
			panic(err)
		}
	}
	b.repeat = false
}

func (b *bench) Situations() map[string]int { return b.met }

func (b *bench) meet(is bool, name string) {
	if is && !b.repeat {
		b.met[name]++
	}
}

func benchStep(kind int, i uint8, token int) explore.Step {
	return explore.Step(kind)<<8 | explore.Step(i)<<4 | explore.Step(token)
}

func (b *bench) Steps(room []explore.Step) []explore.Step {
	for i := range uint8(benchSessions) {
		switch {
		case b.ending[i] != nil:
			room = append(room, benchStep(gone, i, 0), benchStep(notGone, i, 0), benchStep(leave, i, 0))
		case !b.alive[i]:
			room = append(room, benchStep(open, i, 0))
		default:
			room = append(room, benchStep(leave, i, 0))
			if b.model.Sessions[i].Bound {
				room = append(room, benchStep(unbind, i, 0))
			}
		}
		for token := 1; token <= benchTokens && b.alive[i] && b.waits[resourceOf(i)].done == nil; token++ {
			room = append(room, benchStep(bind, i, token))
		}
	}
	for r := range uint8(fence.Resources) {
		for token := 1; token <= benchTokens && b.waits[r].done == nil; token++ {
			room = append(room, benchStep(raise, r, token))
		}
	}
	return room
}

func (b *bench) Tell(s explore.Step) string {
	kind, i, token := int(s>>8), uint8(s>>4)&0xf, int(s)&0xf
	return [...]string{
		open:    fmt.Sprintf("session %d begins again", i),
		leave:   fmt.Sprintf("session %d ends by itself", i),
		bind:    fmt.Sprintf("session %d claims r%d with token %d", i, resourceOf(i), token),
		raise:   fmt.Sprintf("a claim of r%d with token %d and no session", i, token),
		gone:    fmt.Sprintf("the takeover hears that session %d is gone", i),
		notGone: fmt.Sprintf("the takeover hears that session %d is not gone in time", i),
		unbind:  fmt.Sprintf("session %d is unbound", i),
	}[kind]
}

func (b *bench) Take(s explore.Step) error {
	b.taken = append(b.taken, s)
	kind, i, token := int(s>>8), uint8(s>>4)&0xf, lease.Token(s)&0xf
	var err error
	switch kind {
	case open:
		b.alive[i] = true
		b.started[i]++
	case leave:
		b.meet(b.ending[i] != nil, "left during a takeover")
		err = b.sessionEnds(i)
	case bind:
		b.meet(b.model.Sessions[i].Bound && b.model.Sessions[i].Token < token, "raised itself")
		err = b.claim(i, resourceOf(i), token)
	case raise:
		err = b.claim(fence.Nobody, i, token)
	case gone:
		err = b.sessionEnds(i)
	case notGone:
		r := resourceOf(i)
		var all []uint8 // that the takeover waits for: they time out together
		for j := range uint8(benchSessions) {
			if resourceOf(j) == r {
				all = append(all, j)
			}
		}
		b.settle(errors.New("it lives"), all...)
		b.model.GiveUp(r)
		err = b.answered(r, 0)
	case unbind:
		_, err = b.store.Unbind(b.ctx, b.claimOf(resourceOf(i), b.model.Sessions[i].Token), b.session(i), true)
		b.model.Sessions[i] = fence.Session{}
	}
	if err != nil {
		return err
	}
	return b.compare()
}

func (b *bench) Key() explore.Key {
	text := fmt.Appendf(nil, "%v %v", b.model, b.alive)
	for _, c := range b.ending {
		text = fmt.Append(text, c != nil)
	}
	for _, w := range b.waits {
		text = fmt.Append(text, w.session, w.token, w.done != nil, w.done != nil && b.isDead(w))
	}
	sum := sha256.Sum256(text)
	return explore.Key(sum[:16])
}
