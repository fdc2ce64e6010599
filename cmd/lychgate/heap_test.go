package main

import "testing"

// A small heap may grow to the bound, and a large one to twice of what it holds, as ever.
func TestGarbageIsBounded(t *testing.T) {
	for _, live := range []uint64{0, 1 << 10, 10 << 20, 30 << 20, 63 << 20, 64 << 20, 65 << 20, 1 << 30, 1 << 40} {
		limit := max(smallHeap, 2*live)
		if grown := live + live/100*uint64(percentFor(live)); grown > limit {
			t.Errorf("%d live bytes grow to %d, more than %d", live, grown, limit)
		}
		if percentFor(live) < usualPercent {
			t.Errorf("%d live bytes are collected more often than usual", live)
		}
	}
}
