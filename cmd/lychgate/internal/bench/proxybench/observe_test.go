package proxybench

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// steady is a client that ends a transaction every millisecond from the start on, for a second.
func steady(client int) (all []transaction) {
	for i := range int64(1001) {
		all = append(all, transaction{client: client, took: time.Duration(i) * time.Microsecond, ended: i * 1000})
	}
	return all
}

// readings are of a process that uses half of a processor, read every 10 ms over two seconds.
func readings() (w watched) {
	for i := range int64(200) {
		at := i*10_000 - 500_000
		w = append(w, reading{at: at, used: time.Duration(at/2) * time.Microsecond})
	}
	return w
}

func TestObservedIsWhatFallsIntoTheTimeTogether(t *testing.T) {
	all := append(steady(0), steady(1)...)
	got, err := observe(all, readings(), summary{processed: len(all)}, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := observed{perSecond: 2000, p50: 501 * time.Microsecond, p99: 991 * time.Microsecond, cpu: 250 * time.Microsecond}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestObservedIsRefused(t *testing.T) {
	all := steady(0)
	well := summary{processed: len(all)}
	for name, tt := range map[string]struct {
		watched watched
		sum     summary
		clients int
		want    error // nil: another
	}{
		"a transaction failed":            {readings(), summary{len(all), 1}, 1, ErrViolated},
		"more processed than logged":      {readings(), summary{processed: len(all) + 1}, 1, nil},
		"a client that never worked":      {readings(), well, 2, errTooShort},
		"no reading in time":              {readings()[:50], well, 1, errTooShort},
		"one reading in time":             {readings()[:51], well, 1, errTooShort},
		"readings between two of its own": {watched{{at: 10_100}, {at: 10_200}}, well, 1, errTooShort},
	} {
		got, err := observe(all, tt.watched, tt.sum, tt.clients)
		if err == nil || got != (observed{}) || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: got %+v, %v, want %v", name, got, err, tt.want)
		}
	}
}

func TestReadingsWithin(t *testing.T) {
	w := watched{{at: 10}, {at: 20}, {at: 30}, {at: 40}}
	for _, tt := range []struct {
		from, to, first, last int64
		ok                    bool
	}{{10, 40, 10, 40, true}, {11, 39, 20, 30, true}, {0, 99, 10, 40, true}, {11, 29, 0, 0, false}, {41, 99, 0, 0, false}, {0, 9, 0, 0, false}} {
		first, last, ok := w.within(tt.from, tt.to)
		if first.at != tt.first || last.at != tt.last || ok != tt.ok {
			t.Errorf("%d to %d: got %d to %d, %v", tt.from, tt.to, first.at, last.at, ok)
		}
	}
}

// What a process's clock tells is what the process itself was told that it used.
func TestProcessorTime(t *testing.T) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	read := func() time.Duration {
		d, err := processorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	least, began := used(), read()
	for read()-began < 50*time.Millisecond {
	}
	got, most := read(), used()
	const tick = 20 * time.Millisecond
	if got < least+50*time.Millisecond-tick || got > most+tick {
		t.Errorf("the clock says %v, and the system from %v to %v", got, least+50*time.Millisecond, most)
	}
	if _, err := processorTime(1 << 22); err == nil { // above every process number
		t.Error("a process that there is not has a clock")
	}
}
