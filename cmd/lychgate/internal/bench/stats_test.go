package bench

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v: got %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := quantile(d, q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of nothing: want 0")
	}
}

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

func TestMemoryOfAProcess(t *testing.T) {
	text := []byte("Name:\tx\nVmRSS:\t   2048 kB\nRssAnon:\t   1024 kB\n")
	if got, err := field(text, "VmRSS:"); err != nil || got != 2<<20 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := field(text, "RssFile:"); err == nil {
		t.Error("a field that is not there was read")
	}
}
