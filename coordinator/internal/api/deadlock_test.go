package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// wait is an edge written as "waiter>holder@group": the waiter's request is named after it, the lease after the holder.
func wait(text string) crossEdge {
	names, group, _ := strings.Cut(text, "@")
	from, to, _ := strings.Cut(names, ">")
	e := crossEdge{group: uint16(group[0] - '0')}
	party := func(name string) lock.Party {
		return lock.Party{Owner: lock.Owner{Identity: "x", Name: name}, Client: lease.ClientID(name), Request: lease.RequestID(name + group)}
	}
	e.Waiter, e.Holder = party(from), party(to)
	e.Lease = lease.NewID(e.group, [14]byte([]byte(fmt.Sprintf("%-14s", to))))
	return e
}

func waits(texts string) (edges []crossEdge) {
	for text := range strings.FieldsSeq(texts) {
		edges = append(edges, wait(text))
	}
	return edges
}

func ownersOf(cycle []crossEdge) (names []string) {
	for _, e := range cycle {
		names = append(names, e.Waiter.Owner.Name)
	}
	return names
}

func TestCyclesOfWaits(t *testing.T) {
	for name, test := range map[string]struct{ edges, want string }{
		"none":                        {"", "[]"},
		"a chain":                     {"a>b@0 b>c@1 c>d@2", "[]"},
		"a diamond":                   {"a>b@0 a>c@1 b>d@2 c>d@0", "[]"},
		"two groups":                  {"a>b@0 b>a@1", "[[a b]]"},
		"three groups":                {"c>a@2 a>b@0 b>c@1", "[[a b c]]"},
		"a tail that waits for it":    {"t>a@0 a>b@0 b>a@1 b>z@1", "[[a b]]"},
		"two by themselves":           {"a>b@0 b>a@1 c>d@0 d>c@1", "[[a b] [c d]]"},
		"joined by one wait":          {"a>b@0 b>a@1 b>c@2 c>d@0 d>c@1", "[[c d] [a b]]"},
		"the shortest of two":         {"a>b@0 b>c@1 c>a@2 b>a@2", "[[a b]]"},
		"an owner that holds for one": {"a>a@0 a>b@1", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			edges := waits(test.edges)
			for range 5 { // whatever the order
				rand.Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })
				var got []string
				for _, cycle := range cycles(edges) {
					got = append(got, fmt.Sprint(ownersOf(cycle)))
				}
				want := strings.Split(strings.Trim(strings.ReplaceAll(test.want, "] [", "]|["), "[]"), "]|[")
				for i := range want {
					want[i] = "[" + strings.Trim(want[i], "[]") + "]"
				}
				slices.Sort(got)
				slices.Sort(want)
				if test.want == "[]" {
					want = nil
				}
				if !slices.Equal(got, want) {
					t.Fatalf("got %v, want %v", got, want)
				}
			}
		})
	}
}

// Every cycle that is found is one, and none is found exactly where waits can be put in an order.
func TestCyclesOfRandomWaits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	withCycle := 0
	for range 2000 {
		n := 2 + random.IntN(7)
		var edges []crossEdge
		for range random.IntN(3 * n) {
			edges = append(edges, wait(fmt.Sprintf("%c>%c@%d", 'a'+rune(random.IntN(n)), 'a'+rune(random.IntN(n)), random.IntN(3))))
		}
		found := cycles(edges)
		if len(found) > 0 {
			withCycle++
		}
		for _, cycle := range found {
			for i, e := range cycle {
				if next := cycle[(i+1)%len(cycle)]; e.Holder.Owner != next.Waiter.Owner || !slices.Contains(edges, e) {
					t.Fatalf("no cycle: %v", ownersOf(cycle))
				}
			}
		}
		if acyclic(edges) != (len(found) == 0) {
			t.Fatalf("%d cycles in %v", len(found), edges)
		}
	}
	if withCycle < 200 || withCycle > 1800 {
		t.Errorf("%d of 2000 had a cycle: the test tests little", withCycle)
	}
}

// acyclic takes owners away that wait for nobody, until none is left or all that are left wait.
func acyclic(edges []crossEdge) bool {
	edges = slices.DeleteFunc(slices.Clone(edges), func(e crossEdge) bool { return e.Waiter.Owner == e.Holder.Owner })
	for {
		waiting := make(map[lock.Owner]bool)
		for _, e := range edges {
			waiting[e.Waiter.Owner] = true
		}
		left := slices.DeleteFunc(slices.Clone(edges), func(e crossEdge) bool { return !waiting[e.Holder.Owner] })
		if len(left) == len(edges) {
			return len(left) == 0
		}
		edges = left
	}
}

// An edge that only one pass saw counts for nothing: the waits may never have been there together.
func TestOnlyWhatIsSeenTwiceCounts(t *testing.T) {
	whole := waits("a>b@0 b>a@1")
	for name, test := range map[string]struct {
		first, second []crossEdge
		want          int
	}{
		"both":              {whole, whole, 1},
		"one is new":        {whole[:1], whole, 0},
		"one has gone":      {whole, whole[:1], 0},
		"another lease":     {whole, append(slices.Clone(whole[:1]), func() crossEdge { e := whole[1]; e.Lease[5]++; return e }()), 0},
		"another request":   {whole, append(slices.Clone(whole[:1]), func() crossEdge { e := whole[1]; e.Waiter.Request = "new"; return e }()), 0},
		"in another group":  {whole, append(slices.Clone(whole[:1]), func() crossEdge { e := whole[1]; e.group = 2; return e }()), 0},
		"in another order":  {whole, []crossEdge{whole[1], whole[0]}, 1},
		"beside other ones": {append(waits("x>y@0"), whole...), append(waits("y>z@0"), whole...), 1},
	} {
		if got := len(cycles(seenTwice(test.first, test.second))); got != test.want {
			t.Errorf("%s: %d cycles, want %d", name, got, test.want)
		}
	}
}

func TestTheVictimIsTheSameForAll(t *testing.T) {
	behind := waits("a>b@0 b>c@1 c>a@1") // c is no victim: b stands behind it, and would wait for a
	behind[1].Lease = lease.ID{}
	for want, cycle := range map[string][]crossEdge{"c": waits("a>c@0 c>b@1 b>a@2"), "b": behind} {
		for range 3 {
			if got := cycle[victim(cycle)].Waiter.Owner.Name; got != want {
				t.Errorf("victim %s, want %s", got, want)
			}
			cycle = append(slices.Clone(cycle[1:]), cycle[0])
		}
	}
}
