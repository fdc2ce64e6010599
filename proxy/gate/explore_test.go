package gate_test

import (
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"github.com/lychgate/lychgate/chaos/explore"
)

var (
	exploreStates = flag.Int("explore.states", 0, "states of the gate to visit; 0: all there are")
	explorePath   = flag.String("explore.path", "", "take these steps, and tell them")
)

// allStates is how many there are.
const allStates = 2157

// TestExplore visits the states that four holders' connections can bring a gate and a store to, with takeovers that stand
// still between any two of their steps. Nobody may write whom a newer token has fenced, and who was fenced here is told.
func TestExplore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := func() explore.System { return &stage{t: t, met: make(map[string]int)} }
		if *explorePath != "" {
			story, err := explore.Retell(system(), *explorePath)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + story)
			return
		}
		last := &stage{}
		r := explore.Run(explore.Config{Name: "gate", States: *exploreStates, System: func() explore.System {
			last = system().(*stage)
			return last
		}})
		last.clear()
		if r.Failure != nil {
			t.Fatal(r.Failure.Told(system(), "go test ./proxy/gate -run TestExplore -v -explore.path"))
		}
		r.Print(os.Stdout)
		must := []string{
			"admitted", "admitted behind a takeover", "bound", "fenced while it was bound", "refused as stale",
			"refused as stale behind an open connection", "timed out", "raised by the watch",
		}
		if err := r.Enough(cmp.Or(*exploreStates, allStates), must); err != nil {
			t.Error(err)
		}
	})
}

// What can happen to a client, which is the argument.
const (
	admit    = iota // it shows its ticket
	connect         // it was admitted, and its connection to the store is opened
	join            // that is bound
	leave           // and unbound
	die             // its connection closes
	gone            // a takeover hears that its session is gone
	notGone         // a takeover's time is over
	overtake        // the coordinator's watch tells of its grant
)

func stepFor(kind int, i uint8) explore.Step { return explore.Step(kind)<<8 | explore.Step(i) }

// Steps lists what can happen. One call may wait behind another, no more: which of several comes next is the store's affair.
func (s *stage) Steps(room []explore.Step) []explore.Step {
	may := s.calls() < 2
	for i := range uint8(len(tokens)) {
		c := &s.clients[i]
		if c.ending != nil {
			room = append(room, stepFor(gone, i), stepFor(notGone, i))
		}
		switch c.phase {
		case idle:
			room = maybe(room, may, admit, i)
		case admitted:
			room = append(room, stepFor(connect, i), stepFor(die, i))
		case connected:
			room = append(maybe(room, may && c.alive, join, i), stepFor(die, i))
		case bound:
			room = append(maybe(room, c.alive && c.ending == nil, leave, i), stepFor(die, i))
		case admitting, joining:
		}
		if s.newest < tokens[i] {
			room = maybe(room, may, overtake, i)
		}
	}
	return room
}

func maybe(room []explore.Step, may bool, kind int, i uint8) []explore.Step {
	if may {
		room = append(room, stepFor(kind, i))
	}
	return room
}

// Tell says in words what a step will be.
func (s *stage) Tell(step explore.Step) string {
	i := uint8(step)
	return fmt.Sprintf("client %d with token %d: ", i, tokens[i]) + [...]string{
		admit:    "shows its ticket",
		connect:  "its connection to the store is opened",
		join:     "its session is bound",
		leave:    "its session is unbound",
		die:      "its connection closes",
		gone:     "a takeover hears that its session is gone",
		notGone:  "a takeover that waits for its session comes to its deadline",
		overtake: "the watch of the coordinator tells of its grant",
	}[step>>8]
}

// Key is a hash of what decides the future.
func (s *stage) Key() explore.Key {
	text := fmt.Appendf(nil, "%d %d %v", s.floor, s.newest, s.watching != nil)
	for i := range s.clients {
		c := &s.clients[i]
		text = fmt.Appendf(text, " %d %v %v %v %v", c.phase, c.alive, c.ending != nil, c.phase == bound && c.told.Load(), c.waits)
	}
	sum := sha256.Sum256(text)
	return explore.Key(sum[:16])
}
