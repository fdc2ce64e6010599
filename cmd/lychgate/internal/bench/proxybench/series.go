package proxybench

import "github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"

// figure is one of those that a run of pgbench has.
type figure int

const (
	perSecond figure = iota
	p50MS
	p99MS
	cpuMicros // of a transaction
	figureCount
)

// series are what one target has shown, round by round.
type series [figureCount][]float64

func (s *series) add(o observed) {
	for f, v := range map[figure]float64{
		perSecond: o.perSecond, p50MS: figures.MS(o.p50), p99MS: figures.MS(o.p99), cpuMicros: float64(o.cpu.Nanoseconds()) / 1000,
	} {
		s[f] = append(s[f], v)
	}
}

func (s *series) median(f figure) float64 { return figures.Median(s[f]) }

// any reports whether there was a round.
func (s *series) any() bool { return len(s[perSecond]) > 0 }

// last is the figure of the last round.
func (s *series) last(f figure) float64 { return s[f][len(s[f])-1] }
