package ticket

import (
	"crypto/ed25519"
	"testing"
)

// A ticket is byte for byte what the library makes of its payload (Ed25519 has no randomness).
func TestSignsAsTheLibraryDoes(t *testing.T) {
	for seed := range byte(20) {
		private := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
		signer, err := NewSigner(private)
		if err != nil {
			t.Fatal(err)
		}
		payload := []byte(`{"v":1,"c":"lg-test"}`)[:seed]
		want, err := signWithLibrary(private, signer.Key().ID, payload)
		if err != nil {
			t.Fatal(err)
		}
		if got := signer.compact(payload); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}
