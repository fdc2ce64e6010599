package load

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are at most 1/32 of their value wide. The zero value is empty.
type Histogram struct {
	counts [36 * half]int64
	n      int64
	max    time.Duration
}

const half = 32 // buckets of each power of two

// Add counts d; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d.Microseconds()))]++
	h.n++
	h.max = max(h.max, d)
}

// Merge counts what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// bucket numbers values: below 2 × half one by one, then half of them for each power of two.
func bucket(us uint64) int {
	shift := max(0, bits.Len64(us)-6)
	return min(shift*half+int(us>>shift), len(Histogram{}.counts)-1)
}

// upper is the largest value of a bucket.
func upper(i int) time.Duration {
	shift := max(0, i/half-1)
	return time.Duration((i-shift*half+1)<<shift-1) * time.Microsecond
}

// Quantile is the smallest value that is not below the share q of what was counted, up to the width of a bucket.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(h.n))
	for i, n := range h.counts {
		if rank -= n; rank < 0 {
			return min(upper(i), h.max)
		}
	}
	return h.max
}

// Latency is what is told of a histogram.
type Latency struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

// Latency summarises what was counted.
func (h *Histogram) Latency() Latency {
	return Latency{Count: h.n, P50: h.Quantile(0.5), P99: h.Quantile(0.99), Max: h.max}
}
