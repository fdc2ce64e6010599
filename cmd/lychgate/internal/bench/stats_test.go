package bench

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

func TestMeasuredCountsWhatFallsIntoTheTime(t *testing.T) {
	cycles, acquires := measured([]load.Record{
		{Asked: 5, Granted: 9, Answered: 12},  // asked before, ended within
		{Asked: 10, Granted: 14, Answered: 0}, // never given back
		{Asked: 15, Granted: 18, Answered: 19},
		{Asked: 18, Granted: 30, Answered: 31}, // ended after
		{Asked: 21, Granted: 22, Answered: 23},
	}, 10, 20)
	if cycles != 2 || len(acquires) != 3 || acquires[2] != 12 {
		t.Errorf("got %d cycles and acquires %v", cycles, acquires)
	}
}

func TestHandoversGoFromReleaseToGrant(t *testing.T) {
	got := handovers([]load.Record{{Granted: 30, Released: 31}, {Granted: 10, Released: 11}, {Granted: 15, Released: 20}})
	if len(got) != 2 || got[0] != 4 || got[1] != 10 {
		t.Errorf("got %v, want 4 and 10", got)
	}
}

func TestFirstGrantBehindTheSilence(t *testing.T) {
	const killed = int64(1e9)
	at := func(d time.Duration) int64 { return killed + int64(d) }
	for _, tt := range []struct {
		name    string
		records []load.Record
		want    time.Duration
	}{
		{"answers that were on their way", []load.Record{
			{Granted: at(-time.Millisecond)},
			{Granted: at(5 * time.Millisecond)},
			{Granted: at(20 * time.Millisecond)},
			{Granted: at(900 * time.Millisecond)},
			{Granted: at(905 * time.Millisecond)},
		}, 900 * time.Millisecond},
		{"none on their way", []load.Record{{Granted: at(-time.Millisecond)}, {Granted: at(700 * time.Millisecond)}}, 700 * time.Millisecond},
		{"no silence", []load.Record{{Asked: at(-1), Granted: at(3 * time.Millisecond)}, {Asked: at(1), Granted: at(7 * time.Millisecond)}}, 7 * time.Millisecond},
	} {
		if got, err := firstGrant(tt.records, killed); err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := firstGrant([]load.Record{{Granted: at(-1)}}, killed); err == nil {
		t.Error("nothing was granted, and no error")
	}
}

func TestTrafficIsTheMeanOfATime(t *testing.T) {
	w := traffic{samples: []sample{{0, 0}, {1e9, 5e6}, {2e9, 8e6}, {3e9, 11e6}, {9e9, 99e6}}}
	if got := w.between(1e9, 4e9); got != 3 {
		t.Errorf("got %v MB/s, want 3", got)
	}
	if got := w.between(4e9, 5e9); got != 0 {
		t.Errorf("without a sample: got %v, want 0", got)
	}
}

func TestFailures(t *testing.T) {
	if got := failures(0, ""); got != "0 failed" {
		t.Errorf("got %q", got)
	}
	if got := failures(3, "overloaded"); got != "3 failed (overloaded)" {
		t.Errorf("got %q", got)
	}
}
