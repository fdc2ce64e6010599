// Package lease is the vocabulary that the coordinator, its client and its tickets share:
// names, tokens, lease ids and modes, and how each is checked when it comes from outside.
// It decides nothing and does no I/O.
package lease

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what comes from outside. A value past its bound is refused with a *NameError.
const (
	MaxResource  = 256 // bytes of a resource name
	MaxClient    = 128 // bytes of a client id
	MaxRequestID = 128 // bytes of a request id
)

// Resource is a normalised business name that can be locked, such as "ledger/eu".
// Only ParseResource makes one from outside input.
type Resource string

// ClientID names who asks, within its tenant.
type ClientID string

// RequestID names one attempt to acquire, within one client; a retry carries the same one.
type RequestID string

// Identity names the authenticated caller; the tenant is taken from it.
type Identity string

// NameError says which name was refused and why; it is the caller's mistake and nothing was applied.
type NameError struct {
	Field  string // the API's field name: "resource", "client_id", "request_id", "lease_id"
	Reason string // lower case, complete: "is empty", "is longer than 256 bytes"
}

func (e *NameError) Error() string { return e.Field + " " + e.Reason }

// ParseResource checks a resource name: 1 to MaxResource bytes of the characters A-Z a-z 0-9 and
// "._:@+=-" in segments separated by single slashes, no segment empty, "." or "..".
// The set is narrow because the name is signed into tickets, printed in logs and compared by bytes:
// two spellings of one name would be two locks.
func ParseResource(s string) (Resource, error) {
	if err := checkName("resource", s, MaxResource); err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(s, "/") {
		switch segment {
		case "":
			return "", &NameError{"resource", "is not normalised: it has an empty segment (leading, trailing or double slash)"}
		case ".", "..":
			return "", &NameError{"resource", fmt.Sprintf("is not normalised: it has the segment %q", segment)}
		}
	}
	return Resource(s), nil
}

// ParseClientID checks a client id: 1 to MaxClient bytes of the characters of a resource name.
func ParseClientID(s string) (ClientID, error) {
	if err := checkName("client_id", s, MaxClient); err != nil {
		return "", err
	}
	return ClientID(s), nil
}

// ParseRequestID checks a request id: 1 to MaxRequestID bytes of the characters of a resource name.
func ParseRequestID(s string) (RequestID, error) {
	if err := checkName("request_id", s, MaxRequestID); err != nil {
		return "", err
	}
	return RequestID(s), nil
}

func checkName(field, s string, limit int) error {
	switch {
	case s == "":
		return &NameError{field, "is empty"}
	case len(s) > limit:
		return &NameError{field, fmt.Sprintf("is longer than %d bytes", limit)}
	case !utf8.ValidString(s):
		return &NameError{field, "is not valid UTF-8"}
	}
	for _, r := range s {
		if !allowed(r) {
			return &NameError{field, fmt.Sprintf("has the character %q; allowed are letters, digits and ._:@/+=- in ASCII", r)}
		}
	}
	return nil
}

func allowed(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return true
	}
	return strings.ContainsRune("._:@/+=-", r)
}

// Token is a fencing token: incarnation × 2^40 + grant counter, below 2^53. 0 is never issued.
type Token uint64

// Bounds of a token's two halves. MaxToken keeps every token exact in an IEEE 754 double,
// because JSON readers in many languages know no other number.
const (
	CounterBits    = 40
	MaxToken       = Token(1)<<53 - 1
	MaxIncarnation = uint32(1)<<(53-CounterBits) - 1
)

// Incarnation is the number of the cluster's life that issued t.
func (t Token) Incarnation() uint32 { return uint32(t >> CounterBits) }

func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// ID is a lease id: a secret that only the holder knows. The first two bytes are the Raft group
// (big endian), so that any node can route a renewal; the other fourteen are random.
type ID [16]byte

// IDHash is the part of a lease id's SHA-256 that may be shown: in tickets, logs and lists.
type IDHash [16]byte

// NewID makes a lease id for a group from 14 random bytes that the caller supplies.
func NewID(group uint16, random [14]byte) ID {
	var id ID
	id[0], id[1] = byte(group>>8), byte(group)
	copy(id[2:], random[:])
	return id
}

// ParseID reads the form that String writes: 32 lower-case hexadecimal digits.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != hex.EncodedLen(len(id)) {
		return ID{}, &NameError{"lease_id", "is not 32 hexadecimal digits"}
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, &NameError{"lease_id", "is not 32 hexadecimal digits"}
	}
	return id, nil
}

// Group is the Raft group that granted the lease.
func (id ID) Group() uint16 { return uint16(id[0])<<8 | uint16(id[1]) }

// IsZero reports whether id is the zero value, which names no lease.
func (id ID) IsZero() bool { return id == ID{} }

// String is the secret itself, for the wire. Logs use Hash.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MaxGroups bounds the Raft groups of a cluster. Each costs every node a log with its own disk syncs.
const MaxGroups = 64

// GroupOf is the group, from 0 to groups-1, that a resource belongs to: FNV-1a (64 bits) of the name, modulo groups. It
// must never change, and neither may the number of a cluster's groups: another group knows nothing of who holds what.
func GroupOf(r Resource, groups uint16) uint16 {
	if groups <= 1 {
		return 0
	}
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(r) {
		hash = (hash ^ uint64(r[i])) * prime
	}
	return uint16(hash % uint64(groups))
}

// Hash is what may be shown of the lease id.
func (id ID) Hash() IDHash {
	sum := sha256.Sum256(id[:])
	return IDHash(sum[:16])
}

// String is the hash in unpadded URL-safe base64, 22 characters.
func (h IDHash) String() string {
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], h[:])
	return string(text[:])
}

// IsZero reports whether h is the zero value.
func (h IDHash) IsZero() bool { return h == IDHash{} }

// Mode is how a lease shares its resource.
type Mode uint8

// The modes. The zero value is not one, so that a forgotten field is noticed.
const (
	Exclusive Mode = 1
	Shared    Mode = 2
)

func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// ParseMode reads "exclusive" or "shared"; the empty string is exclusive.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", "exclusive":
		return Exclusive, nil
	case "shared":
		return Shared, nil
	}
	return 0, &NameError{"mode", fmt.Sprintf("is %q; known are exclusive and shared", s)}
}
