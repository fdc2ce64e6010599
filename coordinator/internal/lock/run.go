package lock

import "slices"

// run is a list that is sorted no further than it is read: quicksort, of which each part is left until it is the first
// (Paredes and Navarro, "Optimal incremental sorting", 2006). To read the first of n costs about as much as to look at
// all of them twice, and to read all no more than sorting; hundreds of thousands can come at once without a pause.
type run struct {
	list   []timer
	head   int   // the first that was not read
	sorted int   // list[head:sorted] is in order, and nothing behind it is before any of it
	cuts   []int // indexes above sorted, the lowest last: nothing from there on is before anything in front of it
}

const (
	fewTimers = 32 // are sorted at once
	manyCuts  = 64 // more than there are unless each part was cut badly; the rest is then sorted at once
)

// first is the first that was not read.
func (r *run) first() (timer, bool) {
	if r.head == len(r.list) {
		return timer{}, false
	}
	if r.head >= r.sorted {
		r.sort()
	}
	return r.list[r.head], true
}

// drop has read the first, which was asked for before.
func (r *run) drop() { r.head++ }

// sort puts some at the head of the list in order.
func (r *run) sort() {
	for {
		end, last := len(r.list), len(r.cuts)-1
		if last >= 0 {
			end = r.cuts[last]
		}
		if end-r.head > fewTimers && len(r.cuts) < manyCuts {
			r.cuts = append(r.cuts, r.head+cut(r.list[r.head:end]))
			continue
		}
		slices.SortFunc(r.list[r.head:end], timer.compare)
		r.sorted = end
		r.cuts = r.cuts[:max(last, 0)]
		return
	}
}

// cut moves what is before the median of three to the front, and returns where the rest begins. Neither part is empty.
func cut(list []timer) int {
	three := [...]timer{list[0], list[len(list)/2], list[len(list)-1]}
	slices.SortFunc(three[:], timer.compare)
	pivot := three[1]
	i, j := 0, len(list)-1
	for {
		for list[i].before(pivot) {
			i++
		}
		for pivot.before(list[j]) {
			j--
		}
		if i >= j {
			return max(i, 1)
		}
		list[i], list[j] = list[j], list[i]
		i++
		j--
	}
}

// tidy gives back the room of what was read.
func (r *run) tidy() {
	rest := r.list[r.head:]
	if cap(r.list) > 1024 && len(rest) < cap(r.list)/4 {
		r.list = slices.Clone(rest)
	} else {
		r.list = r.list[:copy(r.list, rest)]
	}
	for i := range r.cuts {
		r.cuts[i] -= r.head
	}
	r.sorted, r.head = max(r.sorted-r.head, 0), 0
}
