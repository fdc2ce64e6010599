package main

import "testing"

// A small heap may grow to the bound, and a large one by what a collection has to look through, at most to twice of what it
// holds, as ever.
func TestGarbageIsBounded(t *testing.T) {
	for _, live := range []uint64{0, 1 << 10, 10 << 20, 30 << 20, 63 << 20, 64 << 20, 65 << 20, 1 << 30, 1 << 40} {
		for _, scanned := range []uint64{0, live / 100, live / 3, live, 2 * live} {
			percent := heap{live: live, scanned: scanned}.percent()
			limit := max(smallHeap, live+max(min(scanned, live), live/100*leastPercent))
			if grown := live + live/100*uint64(percent); grown > limit {
				t.Errorf("%d live bytes, of which %d are looked through, grow to %d, more than %d", live, scanned, grown, limit)
			}
			if percent < leastPercent {
				t.Errorf("%d live bytes are collected at each %d %%", live, percent)
			}
		}
		if percent := (heap{live: live, scanned: live}).percent(); percent < usualPercent {
			t.Errorf("%d live bytes full of pointers are collected more often than usual, at %d %%", live, percent)
		}
	}
}

func TestMemoryIsReturnedInQuietTimes(t *testing.T) {
	const mb = 1 << 20
	for _, test := range []struct {
		name          string
		before, after heap
		want          bool
	}{
		{"after a burst", heap{allocated: 900 * mb}, heap{live: 200 * mb, objects: 300 * mb, unused: 20 * mb, allocated: 901 * mb}, true},
		{"collected, but kept", heap{allocated: 900 * mb}, heap{live: 200 * mb, objects: 200 * mb, unused: 150 * mb, allocated: 901 * mb}, true},
		{"under load", heap{allocated: 900 * mb}, heap{live: 200 * mb, objects: 300 * mb, unused: 150 * mb, allocated: 990 * mb}, false},
		{"nothing to give", heap{allocated: 900 * mb}, heap{live: 200 * mb, objects: 205 * mb, unused: 10 * mb, allocated: 901 * mb}, false},
		{"a small node", heap{allocated: 900 * mb}, heap{live: 10 * mb, objects: 18 * mb, unused: 4 * mb, allocated: 901 * mb}, false},
		{"before the first collection", heap{}, heap{}, false},
	} {
		if got := test.after.worthReturning(test.before); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
