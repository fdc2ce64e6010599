package figures

import (
	"slices"
	"time"
)

// Median is the middle of the values, or the mean of the two in the middle; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// Quantile is the smallest value that is not below the share q of them (nearest rank); 0 of none. It sorts d.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// MS is a duration as results have it.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
