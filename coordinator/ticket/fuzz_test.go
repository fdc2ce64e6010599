package ticket

import (
	"strings"
	"testing"
)

// FuzzVerify looks for text that is accepted without having been signed, or that breaks the reader.
func FuzzVerify(f *testing.F) {
	signer := newTestSigner(f, 1)
	ring := newTestRing(f, "lg-test", signer)
	good := sign(f, signer, testClaims())
	parts := strings.Split(good, ".")
	for _, seed := range []string{
		good, "", "42", "..", parts[0] + "..", "eyJhbGciOiJub25lIn0.e30.",
		parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86), good + "\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		claims, err := ring.Verify(raw)
		switch {
		case err == nil && raw != good:
			t.Errorf("accepted %q as %+v", raw, claims)
		case err != nil && reasonOf(err) == 0:
			t.Errorf("%v is not an *Error", err)
		case err != nil && claims != Claims{}:
			t.Errorf("refused and still said %+v", claims)
		}
	})
}

// FuzzParseDocument looks for key documents that break the reader.
func FuzzParseDocument(f *testing.F) {
	text, err := Document{Ring: newTestRing(f, "lg-test", newTestSigner(f, 1)), Index: 7}.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}],"cluster":"c"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if document, err := ParseDocument(text); err == nil && !validCluster(document.Ring.Cluster()) {
			t.Errorf("accepted cluster %q", document.Ring.Cluster())
		}
	})
}
