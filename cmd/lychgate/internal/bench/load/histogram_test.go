package load

import (
	"testing"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	var h, other Histogram
	for i := 1; i <= 1000; i++ {
		d := time.Duration(i) * time.Millisecond
		if i%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.Merge(&other)
	for _, tt := range []struct {
		q    float64
		want time.Duration
	}{{0, time.Millisecond}, {0.5, 501 * time.Millisecond}, {0.99, 991 * time.Millisecond}, {1, time.Second}} {
		got := h.Quantile(tt.q)
		if got < tt.want || got > tt.want+tt.want/32+time.Millisecond {
			t.Errorf("quantile %v: got %v, want %v and at most a bucket more", tt.q, got, tt.want)
		}
	}
	if l := h.Latency(); l.Count != 1000 || l.Max != time.Second {
		t.Errorf("got %+v, want 1000 and a maximum of 1s", l)
	}
	if got := new(Histogram).Quantile(0.99); got != 0 {
		t.Errorf("of nothing: got %v", got)
	}
}

// Every value lies in the bucket whose bound is not below it, and buckets are in order.
func TestHistogramBuckets(t *testing.T) {
	last := -1
	for us := uint64(0); us < 1<<20; us += 1 + us/100 {
		b := bucket(us)
		if b < last {
			t.Fatalf("%d µs: bucket %d after %d", us, b, last)
		}
		last = b
		up := uint64(upper(b).Microseconds())
		if up < us || up > us+us/32 {
			t.Fatalf("%d µs: the bucket reaches to %d", us, up)
		}
	}
	var h Histogram
	h.Add(1 << 62)
	h.Add(-time.Second)
	if h.n != 2 || h.counts[0] != 1 {
		t.Error("values out of range are lost")
	}
}
