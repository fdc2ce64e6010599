package ticket

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Path is where every coordinator serves the document of its cluster's keys.
const Path = "/.well-known/jwks.json"

// maxKeys bounds a document from outside. A cluster has a handful of nodes, each with a key or two.
const maxKeys = 1000

// Document is a ring as a coordinator publishes it: a JWK set (RFC 7517, keys as in RFC 8037) with extra members,
// which other readers of JWK sets ignore.
type Document struct {
	Ring *KeyRing
	// Incarnation and Index say how new the document is: the log position of the node that wrote it.
	// A node that lags publishes an older set than its peers.
	Incarnation uint32
	Index       uint64
}

type documentJSON struct {
	Keys        []json.RawMessage `json:"keys"`
	Cluster     string            `json:"cluster"`
	Incarnation uint32            `json:"incarnation"`
	Index       uint64            `json:"index,string"`
}

// Marshal writes the document as JSON. Equal documents have equal bytes.
func (d Document) Marshal() ([]byte, error) {
	out := documentJSON{
		Keys: []json.RawMessage{}, Cluster: d.Ring.cluster, Incarnation: d.Incarnation, Index: d.Index,
	}
	for _, key := range d.Ring.keys {
		jwk, err := jose.JSONWebKey{Key: key.Public, KeyID: key.ID, Algorithm: string(jose.EdDSA), Use: "sig"}.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("marshal key %s: %w", key.ID, err)
		}
		out.Keys = append(out.Keys, jwk)
	}
	return json.Marshal(out)
}

// ParseDocument reads what Marshal wrote. Keys of other kinds are skipped, as RFC 7517 section 5 asks.
func ParseDocument(text []byte) (Document, error) {
	var in documentJSON
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&in); err != nil {
		return Document{}, fmt.Errorf("JWK set: %w", err)
	}
	if len(in.Keys) > maxKeys {
		return Document{}, fmt.Errorf("JWK set: %d keys, more than %d", len(in.Keys), maxKeys)
	}
	var keys []Key
	for _, text := range in.Keys {
		var jwk jose.JSONWebKey
		if err := jwk.UnmarshalJSON(text); err != nil {
			continue
		}
		if public, ok := jwk.Key.(ed25519.PublicKey); ok {
			keys = append(keys, Key{ID: jwk.KeyID, Public: public})
		}
	}
	ring, err := NewKeyRing(in.Cluster, keys)
	if err != nil {
		return Document{}, fmt.Errorf("JWK set: %w", err)
	}
	return Document{Ring: ring, Incarnation: in.Incarnation, Index: in.Index}, nil
}

// olderThan reports whether d was written at an earlier position than other.
func (d Document) olderThan(other Document) bool {
	if d.Incarnation != other.Incarnation {
		return d.Incarnation < other.Incarnation
	}
	return d.Index < other.Index
}
