package lock

import (
	"encoding/binary"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// terms is what is seldom looked at of a request. They stand behind its words, each in as many bytes as it needs: most
// are small numbers, and durations are whole milliseconds. Every value comes back as it was.
type terms struct {
	sequence    uint64 // the client's own number, or 0
	imprint     imprint
	fingerprint uint64 // if imprint is imprintKept

	// Of a claim.
	claims bool
	lease  lease.ID
	ttl    time.Duration
	until  LeaseTime // once past it, every copy of the request is too old
	waiter slot      // in the queue; none if it is a lease

	// Of a lease.
	token  lease.Token
	since  LeaseTime
	behind uint64 // see requestRecord; if it is 0 there
}

// imprint is how the fingerprint of the parameters that a retry must repeat is known. While the parameters stand there
// themselves it is made when it is needed.
type imprint uint8

const (
	imprintNone  imprint = iota // it is 0
	imprintKept                 // it stands in the terms
	imprintTTL                  // it is that of the claim
	imprintNoTTL                // it is that of the claim without a TTL: the policy's was taken
)

// What else the byte in front of the terms says.
const (
	termsHeld      = 1 << (2 + iota) // a lease
	termsMillisTTL                   // the TTL is in milliseconds
	termsMillisUntil
	termsBehind // it is there
)

func (s *terms) append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.sequence)
	kind, at := byte(s.imprint), len(b)
	b = append(b, 0)
	if s.imprint == imprintKept {
		b = binary.LittleEndian.AppendUint64(b, s.fingerprint)
	}
	if s.claims {
		b = s.appendClaim(b, &kind)
	}
	b[at] = kind
	return b
}

func (s *terms) appendClaim(b []byte, kind *byte) []byte {
	b = appendSpan(b, uint64(s.ttl), kind, termsMillisTTL)
	b = appendSpan(b, uint64(s.until-s.since), kind, termsMillisUntil)
	if s.waiter != none {
		return binary.AppendUvarint(b, uint64(s.waiter))
	}
	*kind |= termsHeld
	b = binary.AppendUvarint(b, uint64(s.token))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.since)) // an instant takes seven bytes soon
	if s.behind != 0 {
		*kind |= termsBehind
		b = binary.AppendUvarint(b, s.behind)
	}
	return b
}

// appendSpan appends nanoseconds, in milliseconds if that can be.
func appendSpan(b []byte, span uint64, kind *byte, millis byte) []byte {
	if span%1e6 == 0 {
		*kind |= millis
		span /= 1e6
	}
	return binary.AppendUvarint(b, span)
}

// read reads what append wrote, but for the lease's id.
func (s *terms) read(b []byte, claims bool) {
	at := 0
	s.claims, s.waiter, s.sequence = claims, none, uvarint(b, &at)
	kind := b[at]
	at++
	s.imprint = imprint(kind & 3)
	if s.imprint == imprintKept {
		s.fingerprint = binary.LittleEndian.Uint64(b[at:])
		at += 8
	}
	if !claims {
		return
	}
	s.ttl = time.Duration(readSpan(b, &at, kind&termsMillisTTL != 0))
	s.until = LeaseTime(readSpan(b, &at, kind&termsMillisUntil != 0))
	if kind&termsHeld == 0 {
		s.waiter = slot(uvarint(b, &at))
		return
	}
	s.token = lease.Token(uvarint(b, &at))
	s.since = LeaseTime(binary.LittleEndian.Uint64(b[at:]))
	at += 8
	s.until += s.since
	if kind&termsBehind != 0 {
		s.behind = uvarint(b, &at)
	}
}

func readSpan(b []byte, at *int, millis bool) uint64 {
	span := uvarint(b, at)
	if millis {
		span *= 1e6
	}
	return span
}
