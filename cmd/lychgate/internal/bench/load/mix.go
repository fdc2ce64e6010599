package load

import (
	"fmt"
	"time"
)

// Mix is a population of clients that hold leases, and what they do in a second. Every call has an instant at which it
// is to be sent, whatever became of those before it, and its latency counts from there: a server that falls behind is
// seen as slow, and not as less asked.
type Mix struct {
	Clients int           `json:"clients"`
	Leases  int           `json:"leases"` // of each client
	Beat    time.Duration `json:"beat"`   // each client renews all its leases this often; 0: never
	Single  bool          `json:"single"` // by a call for each lease, instead of one heartbeat
	Churn   float64       `json:"churn"`  // per second, a client releases one of its leases and acquires another
	// Fill is how many acquires a second fill the population at first; 0: as many as are answered.
	Fill float64 `json:"fill"`
	// Limit is how long the population may take to fill. 0: as long as it takes. Of a Flow, what is not there by then is
	// done without.
	Limit time.Duration `json:"limit"`
	// Together has all leases end at this instant: each is taken for what is left until then. 0: for Plan.TTL.
	Together int64 `json:"together"`
	Streams  int   `json:"streams"` // sessions that the clients share
	Window   int   `json:"window"`  // acquires without an answer while the population is filled
	Keep     bool  `json:"keep"`    // record the acquires of the measured time
}

// Names are an example of a lease's names: of the resource, the client and the request.
func Names(prefix string) (resource, client, request string) {
	return resourceName(prefix, 1234567, 3, 0), clientName(prefix, 1234567), requestName(1234567, 42)
}

// clientName is the name of a client, as long as those that coordinator/client makes: host, process, random part.
func clientName(prefix string, i int) string {
	return fmt.Sprintf("%s-app-%03d-%05d-%s", prefix, i%250, 10000+i%50000, code(uint64(i), 10))
}

// resourceName is the name of one of the two resources that a client's slot alternates between.
func resourceName(prefix string, client, slot, side int) string {
	return fmt.Sprintf("%s/tenant-%04d/order/%07d-%d%c", prefix, client%1000, client, slot, 'a'+rune(side))
}

// requestName is a request id as long as those that coordinator/client makes: 26 letters.
func requestName(client int, sequence uint64) string {
	return code(uint64(client), 13) + code(sequence, 13)
}

// code writes a number as n letters that look random, different for each number.
func code(v uint64, n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	v *= 0x9E3779B97F4A7C15 // odd, so different numbers stay different
	v ^= v >> 32
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[v&31]
		v = v>>5 | v<<59
	}
	return string(b)
}

// line is a series of events at even distances: event k is due at from + k × step.
type line struct {
	from time.Duration // since the start
	step time.Duration
	next int64
	last int64 // the number of events; 0: without end
}

// newLine makes a line of rate events a second, of which this is one of shares.
func newLine(from time.Duration, rate float64, share, shares int) line {
	step := time.Duration(float64(shares) * float64(time.Second) / rate)
	return line{from: from + step*time.Duration(share)/time.Duration(shares), step: step}
}

// due takes the next event, if it is due.
func (l *line) due(now time.Duration) (k int64, at time.Duration, ok bool) {
	at = l.from + time.Duration(l.next)*l.step
	if l.step <= 0 || at > now || l.last > 0 && l.next >= l.last {
		return 0, 0, false
	}
	l.next++
	return l.next - 1, at, true
}
