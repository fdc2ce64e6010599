package postgres_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// comparison holds one server's answers against those that come through proxies.
type comparison struct {
	world   *world
	direct  leg
	proxied []leg

	conversations, messages int // that were compared
}

// leg is a way to the server.
type leg struct {
	name, addr string
	startup    []byte
	pieces     bool          // what the client sends is cut at random places
	patience   time.Duration // how long an answer is waited for
}

func newComparison(t testing.TB) *comparison {
	t.Helper()
	w := newWorld(t)
	unbound, bound := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow }), w.proxy(nil)
	plain := startup("user", "app", "database", w.name).Packet()
	ticket := startup("user", "app", "database", w.name, "fence.ticket", w.ticket("a", 1)).Packet()
	return &comparison{
		world: w, direct: leg{"direct", fmt.Sprintf("127.0.0.1:%d", server.Port()), plain, false, patience},
		proxied: []leg{
			{"without a ticket", unbound.addr, plain, false, patience},
			{"without a ticket, in pieces", unbound.addr, plain, true, patience},
			{"with a ticket", bound.addr, ticket, false, patience},
			{"with a ticket, in pieces", bound.addr, ticket, true, patience},
		},
	}
}

// play holds a conversation from the same beginning.
func (c *comparison) play(t testing.TB, l leg, turns []turn) []string {
	t.Helper()
	pgtest.Exec(t, c.world.admin, "delete from entry; drop table if exists scratch")
	d := newDialogue(t, l)
	d.send(l.startup, nil)
	d.read('Z', 1)
	random := rand.New(rand.NewPCG(seedOf(turns), 1))
	for _, one := range turns {
		var cuts []int
		if l.pieces {
			cuts = cutsOf(random, len(one.send))
		}
		d.send(one.send, cuts)
		if one.count > 0 {
			d.read(one.until, one.count)
		}
	}
	told := d.finish()
	if l.name == c.direct.name && slices.Contains(told, stuck) {
		t.Errorf("%s: the conversation is stuck behind:\n%s", l.name, tail(told, len(told)-2))
	}
	return told
}

// compare says in which message a leg's answers are not the server's; empty: in none.
func (c *comparison) compare(t testing.TB, want []string, l leg, conversation conversation) string {
	t.Helper()
	got := c.play(t, l, conversation.turns)
	c.conversations++
	for i := range max(len(want), len(got)) {
		switch {
		case i < len(got) && conversation.refused != "" && strings.HasPrefix(got[i], "E") && strings.Contains(got[i], conversation.refused):
			return "" // the proxy's own answer, which ends the session
		case i < len(want) && i < len(got) && want[i] == got[i]:
			c.messages++
		case cutOff(got, i) && ends(want) || cutOff(want, i) && ends(got):
			return ""
		default:
			return fmt.Sprintf("%s, message %d:\n%s\n\nthe server itself:\n%s", l.name, i, tail(got, i), tail(want, i))
		}
	}
	if conversation.refused != "" {
		return l.name + ": the proxy did not refuse it"
	}
	return ""
}

// How a conversation ends. By a reset when the server had not read everything: what it had said may be lost with it.
const (
	closed = "closed"
	reset  = "reset"
)

// cutOff reports whether what came behind i may have been lost.
func cutOff(told []string, i int) bool { return i >= len(told)-1 && told[len(told)-1] == reset }

// ends reports whether the server has ended the conversation.
func ends(told []string) bool { last := told[len(told)-1]; return last == closed || last == reset }

// tail is the messages from two before i.
func tail(messages []string, i int) string {
	from := min(max(0, i-2), len(messages))
	return strings.Join(messages[from:min(len(messages), i+4)], "\n")
}

func seedOf(turns []turn) uint64 {
	h := fnv.New64()
	for _, one := range turns {
		_, _ = h.Write(one.send)
	}
	return h.Sum64()
}

// cutsOf is up to twenty places in n bytes, most of them near the beginning, where the small messages are.
func cutsOf(random *rand.Rand, n int) (cuts []int) {
	for at := 0; len(cuts) < 20; {
		at += 1 + random.IntN(12)
		if random.IntN(10) == 0 {
			at += random.IntN(1 + n/4)
		}
		if at >= n {
			break
		}
		cuts = append(cuts, at)
	}
	return cuts
}

// The same bytes get the same answers through the proxy as without it, but for what frame.text leaves out.
func TestSameMessagesAsWithoutTheProxy(t *testing.T) {
	c := newComparison(t)
	for _, one := range corpus(t) {
		t.Run(one.name, func(t *testing.T) {
			want := c.play(t, c.direct, one.turns)
			for _, l := range c.proxied {
				if difference := c.compare(t, want, l, one); difference != "" {
					t.Error(difference)
				}
			}
		})
	}
	t.Logf("%d conversations through a proxy compared, %d messages", c.conversations, c.messages)
	if c.conversations < 200 || c.messages < 5000 {
		t.Errorf("only %d conversations and %d messages were compared", c.conversations, c.messages)
	}
}

// corpus is the conversations in testdata.
func corpus(t testing.TB) (all []conversation) {
	t.Helper()
	files, err := filepath.Glob("testdata/conversations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		some, err := parseConversations(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, some...)
	}
	return all
}
