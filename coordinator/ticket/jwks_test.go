package ticket

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestDocumentRoundTrip(t *testing.T) {
	ring := newTestRing(t, "lg-test", newTestSigner(t, 1), newTestSigner(t, 2))
	text, err := Document{Ring: ring, Incarnation: 3, Index: 1<<63 + 1}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Ring.Cluster() != "lg-test" || got.Incarnation != 3 || got.Index != 1<<63+1 || !sameKeys(got.Ring, ring) {
		t.Errorf("got %+v from %s", got, text)
	}
	again, err := got.Marshal()
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("marshalled again: %s, %v; want %s", again, err, text)
	}
}

// The document is what RFC 8037 says, so that somebody else's library reads it.
func TestDocumentIsAJWKSet(t *testing.T) {
	text, err := Document{Ring: newTestRing(t, "lg-test", newTestSigner(t, 1))}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Cluster string
		Keys    []map[string]string
	}
	if err := json.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	key := set.Keys[0]
	if key["kty"] != "OKP" || key["crv"] != "Ed25519" || key["alg"] != "EdDSA" || key["use"] != "sig" || key["x"] == "" || key["d"] != "" {
		t.Errorf("key is %v", key)
	}
	if key["kid"] != newTestSigner(t, 1).Key().ID || set.Cluster != "lg-test" {
		t.Errorf("got %s", text)
	}
}

func TestParseDocument(t *testing.T) {
	good := `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
	for name, test := range map[string]struct {
		text string
		keys int // -1: an error
	}{
		"a key of RFC 8037":       {`{"cluster":"c","keys":[` + good + `],"index":"1"}`, 1},
		"unknown kinds skipped":   {`{"cluster":"c","keys":[{"kty":"new"},` + good + `],"index":"1"}`, 1},
		"no keys":                 {`{"cluster":"c","index":"1"}`, 0},
		"no cluster":              {`{"keys":[]}`, -1},
		"not JSON":                {`<html>`, -1},
		"key id of another key":   {`{"cluster":"c","keys":[{"kid":"x",` + good[1:] + `]}`, -1},
		"cluster of another form": {`{"cluster":"a b","keys":[]}`, -1},
	} {
		got, err := ParseDocument([]byte(test.text))
		switch {
		case test.keys < 0 && err == nil:
			t.Errorf("%s: accepted", name)
		case test.keys >= 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.keys >= 0 && len(got.Ring.Keys()) != test.keys:
			t.Errorf("%s: %d keys, want %d", name, len(got.Ring.Keys()), test.keys)
		}
	}
}
