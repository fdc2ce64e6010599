package main

import (
	"os"
	"runtime"
	"runtime/debug"
	heapmetrics "runtime/metrics"
)

// smallHeap is what a coordinator's heap may grow to before it is collected, if it holds less than half of that. A node
// with few leases holds some 30 MB and makes garbage of as much in a fifth of a second under load; collecting it each
// time costs a fifth of its CPU. A node with many leases is collected as usual, so it costs none of its memory.
const smallHeap = 128 << 20

// usualPercent is the runtime's own default (runtime/debug.SetGCPercent).
const usualPercent = 100

// collectLess adjusts the garbage collector to the heap, now and after each collection. It leaves it alone where GOGC
// says what to do.
func collectLess() {
	if os.Getenv("GOGC") != "" {
		return
	}
	adjustTo(liveHeap(), usualPercent)
}

func adjustTo(live uint64, percent int) {
	if want := percentFor(live); want < percent*9/10 || want > percent*11/10 {
		debug.SetGCPercent(want)
		percent = want
	}
	// Cleaned up with the next collection, which is when there is something new to know.
	runtime.AddCleanup(new(sentinel), func(percent int) { adjustTo(liveHeap(), percent) }, percent)
}

type sentinel struct{ _ [64]byte } // not batched with other small objects (runtime.AddCleanup)

// percentFor is how much garbage is worth collecting, in percent of what is live.
func percentFor(live uint64) int {
	const most = 1000
	if live >= smallHeap/2 {
		return usualPercent
	}
	return int(min(most, (smallHeap-live)*100/max(live, 1)))
}

// liveHeap is what the last collection has found alive, in bytes; 0 if there was none.
func liveHeap() uint64 {
	sample := []heapmetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	heapmetrics.Read(sample)
	if sample[0].Value.Kind() != heapmetrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
