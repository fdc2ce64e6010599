package api

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// crossEdge is an edge of the wait-for graph of all groups.
type crossEdge struct {
	group uint16
	lock.Edge
}

// seenTwice are the edges that both passes saw. An edge is a request that waits for one lease, or behind one other
// request, and neither comes back once it has ended; so each of them was there at the moment between the passes.
func seenTwice(first, second []crossEdge) []crossEdge {
	seen := make(map[crossEdge]bool, len(first))
	for _, e := range first {
		seen[e] = true
	}
	return slices.DeleteFunc(slices.Clone(second), func(e crossEdge) bool { return !seen[e] })
}

// cycles finds owners that wait for themselves: one cycle through each set of owners that all wait for one another, as the
// edges of its members. Their order depends on the edges alone, so whoever looks finds the same.
func cycles(edges []crossEdge) [][]crossEdge {
	g := newOwners(edges)
	var found [][]crossEdge
	for _, set := range g.knots() {
		if cycle := g.through(set); cycle != nil {
			found = append(found, cycle)
		}
	}
	return found
}

// victim is the edge of a cycle whose wait is ended: that of an owner who holds what the one before it waits for, and of
// those the last in order, whatever the order is. To end the wait of one who merely stands ahead in a queue would help
// nobody: who stands behind it waits for the same.
func victim(cycle []crossEdge) int {
	at := -1
	for i := range cycle {
		before := cycle[(i+len(cycle)-1)%len(cycle)]
		if before.Lease.IsZero() {
			continue
		}
		if at < 0 || compareParties(cycle[i].Waiter, cycle[at].Waiter) > 0 {
			at = i
		}
	}
	return max(at, 0)
}

func compareParties(a, b lock.Party) int {
	return cmp.Or(compareOwners(a.Owner, b.Owner), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Request, b.Request))
}

func compareOwners(a, b lock.Owner) int {
	return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Name, b.Name))
}

// owners is the graph: who waits for whom.
type owners struct {
	out   map[lock.Owner][]crossEdge
	names []lock.Owner // those that wait, in order
}

func newOwners(edges []crossEdge) *owners {
	g := &owners{out: make(map[lock.Owner][]crossEdge)}
	for _, e := range edges {
		from := e.Waiter.Owner
		if from == e.Holder.Owner {
			continue // within one group, where it was let in
		}
		if g.out[from] == nil {
			g.names = append(g.names, from)
		}
		g.out[from] = append(g.out[from], e)
	}
	slices.SortFunc(g.names, compareOwners)
	for _, out := range g.out {
		slices.SortStableFunc(out, func(a, b crossEdge) int {
			return cmp.Or(compareOwners(a.Holder.Owner, b.Holder.Owner), cmp.Compare(a.group, b.group), compareParties(a.Waiter, b.Waiter))
		})
	}
	return g
}

// visit is one owner on the stack of knots.
type visit struct {
	owner lock.Owner
	next  int // edge to look at
}

// knots are the strongly connected sets of more than one owner (Tarjan's algorithm, without recursion: chains are long).
func (g *owners) knots() [][]lock.Owner {
	var found [][]lock.Owner
	index, low := make(map[lock.Owner]int), make(map[lock.Owner]int)
	on := make(map[lock.Owner]bool)
	var open []lock.Owner
	enter := func(o lock.Owner) visit {
		index[o] = len(index) + 1
		low[o] = index[o]
		open, on[o] = append(open, o), true
		return visit{owner: o}
	}
	for _, root := range g.names {
		if index[root] != 0 {
			continue
		}
		stack := []visit{enter(root)}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if out := g.out[top.owner]; top.next < len(out) {
				to := out[top.next].Holder.Owner
				top.next++
				switch {
				case index[to] == 0:
					stack = append(stack, enter(to))
				case on[to]:
					low[top.owner] = min(low[top.owner], index[to])
				}
				continue
			}
			done := top.owner
			stack = stack[:len(stack)-1]
			if len(stack) > 0 {
				above := stack[len(stack)-1].owner
				low[above] = min(low[above], low[done])
			}
			if low[done] != index[done] {
				continue
			}
			at := slices.Index(open, done)
			if set := open[at:]; len(set) > 1 {
				found = append(found, slices.Clone(set))
			}
			for _, o := range open[at:] {
				on[o] = false
			}
			open = open[:at]
		}
	}
	return found
}

// through is a shortest cycle through the first owner, in order, of a set that is strongly connected.
func (g *owners) through(set []lock.Owner) []crossEdge {
	start := slices.MinFunc(set, compareOwners)
	came := make(map[lock.Owner]crossEdge)
	for queue := []lock.Owner{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.out[queue[0]] {
			to := e.Holder.Owner
			if _, seen := came[to]; seen {
				continue
			}
			came[to] = e
			if to != start {
				queue = append(queue, to)
				continue
			}
			var cycle []crossEdge
			for at := start; len(cycle) == 0 || at != start; {
				step := came[at]
				cycle = append(cycle, step)
				at = step.Waiter.Owner
			}
			slices.Reverse(cycle)
			return cycle
		}
	}
	return nil
}
