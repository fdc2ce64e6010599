package main

import (
	"context"
	"runtime/debug"
	"time"
)

// A burst of leases leaves garbage behind, and pages that the runtime keeps for the next one: together more than the leases.
// In a quiet hour nobody would collect it. So a coordinator that allocates little collects, and gives what it does not
// need back to the system.
const (
	returnEvery = 10 * time.Second
	fewBytes    = 16 << 20 // who allocates less and less than one part of so many of what is live is quiet
	smallPart   = 8
	fewIdle     = 12 << 20 // not worth a collection, and neither is one part of so many of what is live
	smallIdle   = 32
)

// careForHeap has the process use as much memory as is worth it, until the returned function is called, which waits.
func careForHeap() (stop func()) {
	collectLess()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		returnMemory(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// returnMemory gives memory back in quiet times, until ctx ends.
func returnMemory(ctx context.Context) {
	ticker := time.NewTicker(returnEvery)
	defer ticker.Stop()
	before := readHeap()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := readHeap()
		if now.worthReturning(before) {
			debug.FreeOSMemory()
			now = readHeap()
		}
		before = now
	}
}

// worthReturning reports whether it has been quiet since an earlier look, and there is something to give back.
func (h heap) worthReturning(before heap) bool {
	little := h.live/smallPart + fewBytes
	idle := h.unused + h.objects - min(h.objects, h.live)
	return h.allocated-before.allocated < little && idle > h.live/smallIdle+fewIdle
}
