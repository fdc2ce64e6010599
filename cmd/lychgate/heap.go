package main

import (
	"os"
	"runtime"
	"runtime/debug"
	heapmetrics "runtime/metrics"
)

// smallHeap is what a coordinator's heap may grow to before it is collected, if it holds less than half of that. A node
// with few leases holds some 30 MB and makes garbage of as much in a fifth of a second under load; collecting it each
// time costs a fifth of its CPU. Of a larger heap see percent.
const smallHeap = 128 << 20

// Bounds of the garbage that is worth collecting, in percent of what is live.
const (
	leastPercent = 10 // however little of the heap has to be looked through
	usualPercent = 100
	mostPercent  = 1000
)

// collectLess adjusts the garbage collector to the heap, now and after each collection. It leaves it alone where GOGC
// says what to do.
func collectLess() {
	if os.Getenv("GOGC") != "" {
		return
	}
	h := readHeap()
	adjustTo(h, usualPercent)
}

func adjustTo(h heap, percent int) {
	if want := h.percent(); want < percent*9/10 || want > percent*11/10 {
		debug.SetGCPercent(want)
		percent = want
	}
	// Cleaned up with the next collection, which is when there is something new to know.
	runtime.AddCleanup(new(sentinel), func(percent int) { adjustTo(readHeap(), percent) }, percent)
}

type sentinel struct{ _ [64]byte } // not batched with other small objects (runtime.AddCleanup)

// heap is what the runtime tells of the heap, in bytes.
type heap struct {
	live      uint64 // what the last collection has found alive; 0 if there was none
	scanned   uint64 // the part of it that may hold pointers, which is what a collection looks through
	objects   uint64 // live and not yet collected
	unused    uint64 // taken from the system, and not given back
	allocated uint64 // since the start
}

// percent is how much garbage is worth collecting, in percent of what is live. A collection costs what it looks through, so
// as much garbage as that makes it as cheap as Go's default does a heap full of pointers; the leases are not.
func (h heap) percent() int {
	garbage := min(h.scanned, h.live)
	if h.live < smallHeap {
		garbage = max(garbage, smallHeap-h.live)
	}
	percent := garbage * 100 / max(h.live, 1)
	return int(min(max(percent, leastPercent), mostPercent))
}

// readHeap asks the runtime.
func readHeap() heap {
	samples := []heapmetrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/heap:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	heapmetrics.Read(samples)
	values := make([]uint64, len(samples))
	for i, s := range samples {
		if s.Value.Kind() == heapmetrics.KindUint64 {
			values[i] = s.Value.Uint64()
		}
	}
	return heap{live: values[0], scanned: values[1], objects: values[2], unused: values[3] + values[4], allocated: values[5]}
}
