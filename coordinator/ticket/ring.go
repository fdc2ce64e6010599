package ticket

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// KeyRing is the set of keys that may sign tickets of one cluster. It never changes; a changed set is a new ring.
type KeyRing struct {
	cluster string
	keys    []Key
	byID    map[string]ed25519.PublicKey
}

// NewKeyRing makes a ring. A key whose ID is empty gets it; one whose ID is not its thumbprint is an error.
func NewKeyRing(cluster string, keys []Key) (*KeyRing, error) {
	if !validCluster(cluster) {
		return nil, fmt.Errorf("key ring: cluster %q is not 1 to %d letters, digits and ._-", cluster, MaxCluster)
	}
	ring := &KeyRing{cluster: cluster, byID: make(map[string]ed25519.PublicKey, len(keys))}
	for _, key := range keys {
		if len(key.Public) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("key ring: a key of %d bytes, want %d", len(key.Public), ed25519.PublicKeySize)
		}
		id := KeyID(key.Public)
		if key.ID != "" && key.ID != id {
			return nil, fmt.Errorf("key ring: key id %q is not the thumbprint %q of its key", key.ID, id)
		}
		key.ID = id
		if _, known := ring.byID[id]; !known {
			ring.byID[id] = key.Public
			ring.keys = append(ring.keys, key)
		}
	}
	return ring, nil
}

// Cluster is the name of the cluster whose tickets the ring verifies.
func (r *KeyRing) Cluster() string { return r.cluster }

// Keys returns a copy of the keys, in the order they were given.
func (r *KeyRing) Keys() []Key { return append([]Key(nil), r.keys...) }

// Has reports whether the ring has the key with this id.
func (r *KeyRing) Has(id string) bool { _, ok := r.byID[id]; return ok }

// Verify checks a ticket from outside and returns what it says. Every error is an *Error.
// The cluster is looked at before the key, only to give the better reason: nothing is believed that is not signed.
func (r *KeyRing) Verify(raw string) (Claims, error) {
	t, err := parse(raw)
	if err != nil {
		return Claims{}, err
	}
	return r.verify(t)
}

func (r *KeyRing) verify(t *parsed) (Claims, error) {
	if t.claims.Cluster != r.cluster {
		return Claims{}, refuse(OtherCluster, "it is of cluster %q, this is %q", t.claims.Cluster, r.cluster)
	}
	public, ok := r.byID[t.keyID]
	if !ok && seeded.Is(seeded.UnknownKeyTrusted) {
		return t.claims, nil
	}
	if !ok {
		return Claims{}, refuse(UnknownKey, "cluster %q does not publish key %q", r.cluster, t.keyID)
	}
	if _, err := t.jws.Verify(public); err != nil {
		return Claims{}, refuse(BadSignature, "it was changed, or signed by somebody else")
	}
	return t.claims, nil
}

// parsed is a ticket whose form is right and whose signature nobody has checked.
type parsed struct {
	jws    *jose.JSONWebSignature
	keyID  string
	claims Claims
}

func parse(raw string) (*parsed, error) {
	if err := checkForm(raw); err != nil {
		return nil, err
	}
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, refuse(Malformed, "not a JWS that is signed with EdDSA: %w", err)
	}
	header := jws.Signatures[0].Protected
	switch {
	case header.KeyID == "":
		return nil, refuse(Malformed, "it names no key")
	case len(header.KeyID) > base64.RawURLEncoding.EncodedLen(32):
		return nil, refuse(Malformed, "its key id is too long")
	case header.ExtraHeaders[jose.HeaderType] != typ || len(header.ExtraHeaders) != 1 || header.JSONWebKey != nil:
		return nil, refuse(Malformed, "it is a JWS of another kind")
	}
	claims, err := decode(jws.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, refuse(Malformed, "its claims: %w", err)
	}
	return &parsed{jws: jws, keyID: header.KeyID, claims: claims}, nil
}

// checkForm refuses what the decoders behind it would quietly repair: line breaks, and the unused bits at the
// end of a part. One ticket has one spelling, so that a verdict can be kept under the text.
func checkForm(raw string) error {
	if len(raw) > MaxSize {
		return refuse(TooLong, "%d bytes, a ticket has at most %d", len(raw), MaxSize)
	}
	if _, err := strconv.ParseUint(raw, 10, 64); err == nil {
		return refuse(Malformed, "it is a bare number: give the ticket of the lease, not its token")
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return refuse(Malformed, "%d parts, a ticket has 3", len(parts))
	}
	for _, part := range parts {
		if strings.ContainsAny(part, "\r\n") {
			return refuse(Malformed, "it contains a line break")
		}
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return refuse(Malformed, "not URL-safe base64: %w", err)
		}
	}
	return nil
}

func decode(payload []byte) (Claims, error) {
	reader := json.NewDecoder(bytes.NewReader(payload))
	reader.DisallowUnknownFields()
	var w wire
	if err := reader.Decode(&w); err != nil {
		return Claims{}, err
	}
	if reader.More() {
		return Claims{}, errors.New("something follows them")
	}
	return w.claims()
}
