package ticket

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// newTestSigner makes a signer whose key depends on seed only, so that a failure can be repeated.
func newTestSigner(t testing.TB, seed byte) *Signer {
	t.Helper()
	signer, err := NewSigner(testKey(seed))
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func testKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func testClaims() Claims {
	return Claims{
		Cluster: "lg-test", Incarnation: 2, Group: 1, Resource: "ledger/eu", Token: 2<<lease.CounterBits + 42,
		Mode: lease.Exclusive, Lease: lease.ID{1}.Hash(), Client: ClientHash("anonymous", "worker-1"),
	}
}

func newTestRing(t testing.TB, cluster string, signers ...*Signer) *KeyRing {
	t.Helper()
	var keys []Key
	for _, s := range signers {
		keys = append(keys, s.Key())
	}
	ring, err := NewKeyRing(cluster, keys)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func sign(t testing.TB, s *Signer, c Claims) string {
	t.Helper()
	raw, err := s.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func reasonOf(err error) Reason {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return 0
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	signer := newTestSigner(t, 1)
	ring := newTestRing(t, "lg-test", newTestSigner(t, 2), signer)
	got, err := ring.Verify(sign(t, signer, testClaims()))
	if err != nil {
		t.Fatal(err)
	}
	if want := testClaims(); got != want {
		t.Errorf("claims:\n got %+v\nwant %+v", got, want)
	}
}

func TestLongestTicketFits(t *testing.T) {
	claims := testClaims()
	claims.Cluster = strings.Repeat("c", MaxCluster)
	claims.Resource = lease.Resource(strings.Repeat("r", lease.MaxResource))
	claims.Group, claims.Incarnation, claims.Token = 65535, lease.MaxIncarnation, lease.MaxToken
	raw := sign(t, newTestSigner(t, 1), claims)
	if len(raw) > MaxSize {
		t.Errorf("%d bytes, more than %d", len(raw), MaxSize)
	}
	if got, err := newTestRing(t, claims.Cluster, newTestSigner(t, 1)).Verify(raw); err != nil || got != claims {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSignRefusesWhatNoCoordinatorGrants(t *testing.T) {
	signer := newTestSigner(t, 1)
	for name, change := range map[string]func(*Claims){
		"no cluster":         func(c *Claims) { c.Cluster = "" },
		"token 0":            func(c *Claims) { c.Token = 0 },
		"token too large":    func(c *Claims) { c.Token = lease.MaxToken + 1 },
		"other incarnation":  func(c *Claims) { c.Incarnation++ },
		"no mode":            func(c *Claims) { c.Mode = 0 },
		"no lease":           func(c *Claims) { c.Lease = lease.IDHash{} },
		"no client":          func(c *Claims) { c.Client = "" },
		"no resource":        func(c *Claims) { c.Resource = "" },
		"unnormalised":       func(c *Claims) { c.Resource = "a//b" },
		"cluster with quote": func(c *Claims) { c.Cluster = `a"b` },
	} {
		claims := testClaims()
		change(&claims)
		if raw, err := signer.Sign(claims); err == nil {
			t.Errorf("%s: signed %s", name, raw)
		}
	}
}

// Every bit of a ticket counts: whichever is flipped, in the header, the claims, the signature or a separator, the
// ticket is refused.
func TestFlippedBit(t *testing.T) {
	signer := newTestSigner(t, 1)
	ring := newTestRing(t, "lg-test", signer)
	raw := sign(t, signer, testClaims())
	for i := range raw {
		for bit := range 8 {
			flipped := []byte(raw)
			flipped[i] ^= 1 << bit
			if claims, err := ring.Verify(string(flipped)); err == nil {
				t.Fatalf("bit %d of byte %d flipped and accepted: %+v", bit, i, claims)
			} else if reasonOf(err) == 0 {
				t.Fatalf("bit %d of byte %d: %v is not an *Error", bit, i, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	signer := newTestSigner(t, 1)
	ring := newTestRing(t, "lg-test", signer)
	good := sign(t, signer, testClaims())
	parts := strings.Split(good, ".")
	other := testClaims()
	other.Cluster = "lg-other"

	changed := testClaims()
	changed.Token++
	changedParts := strings.Split(sign(t, signer, changed), ".")

	for name, test := range map[string]struct {
		raw  string
		want Reason
	}{
		"empty":                        {"", Malformed},
		"token in place of a ticket":   {"42", Malformed},
		"largest number":               {"9223372036854775807", Malformed},
		"words":                        {"let me in", Malformed},
		"two parts":                    {parts[0] + "." + parts[1], Malformed},
		"four parts":                   {good + ".AAAA", Malformed},
		"line break":                   {parts[0] + "." + parts[1] + "." + parts[2][:40] + "\n" + parts[2][40:], Malformed},
		"padding":                      {good + "=", Malformed},
		"too long":                     {good + strings.Repeat("A", MaxSize), TooLong},
		"another cluster, same key":    {sign(t, signer, other), OtherCluster},
		"another cluster, other key":   {sign(t, newTestSigner(t, 2), other), OtherCluster},
		"unknown key":                  {sign(t, newTestSigner(t, 2), testClaims()), UnknownKey},
		"claims of another ticket":     {parts[0] + "." + changedParts[1] + "." + parts[2], BadSignature},
		"signature of another ticket":  {parts[0] + "." + parts[1] + "." + changedParts[2], BadSignature},
		"no signature":                 {parts[0] + "." + parts[1] + ".", BadSignature},
		"signed by another, our kid":   {resign(t, testKey(2), signer.Key().ID, typ), BadSignature},
		"algorithm none":               {forge(t, map[string]any{"alg": "none", "kid": signer.Key().ID, "typ": typ}), Malformed},
		"HS256 with the public key":    {forgeHMAC(t, signer), Malformed},
		"no key id":                    {resign(t, testKey(1), "", typ), Malformed},
		"another kind of JWS":          {resign(t, testKey(1), signer.Key().ID, "JWT"), Malformed},
		"header with an embedded key":  {forge(t, map[string]any{"alg": "EdDSA", "kid": signer.Key().ID, "typ": typ, "jwk": jose.JSONWebKey{Key: testKey(2).Public()}}), Malformed},
		"header that demands the rest": {forge(t, map[string]any{"alg": "EdDSA", "kid": signer.Key().ID, "typ": typ, "crit": []string{"x"}, "x": 1}), Malformed},
	} {
		claims, err := ring.Verify(test.raw)
		if err == nil {
			t.Errorf("%s: accepted as %+v", name, claims)
			continue
		}
		if got := reasonOf(err); got != test.want {
			t.Errorf("%s: got %v (%v), want %v", name, got, err, test.want)
		}
		if test.raw != "" && len(test.raw) > 100 && strings.Contains(err.Error(), parts[2]) {
			t.Errorf("%s: the error repeats the ticket", name)
		}
	}
}

// resign signs the payload of a good ticket under a header of the caller's choice.
func resign(t *testing.T, key ed25519.PrivateKey, keyID, kind string) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(kind))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, options)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, signer)
}

// forgeHMAC signs with the public key as a shared secret, the classic confusion of algorithms.
func forgeHMAC(t *testing.T, s *Signer) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: []byte(s.Key().Public), KeyID: s.Key().ID},
	}, (&jose.SignerOptions{}).WithType(typ))
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, signer)
}

func compact(t *testing.T, signer jose.Signer) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(sign(t, newTestSigner(t, 1), testClaims()), ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// forge puts another header before the claims and the signature of a good ticket.
func forge(t *testing.T, header map[string]any) string {
	t.Helper()
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(sign(t, newTestSigner(t, 1), testClaims()), ".")
	return base64.RawURLEncoding.EncodeToString(text) + "." + parts[1] + "." + parts[2]
}

func TestClientHashTellsTenantsApart(t *testing.T) {
	if ClientHash("a", "bc") == ClientHash("ab", "c") {
		t.Error("two holders have one hash")
	}
}

func BenchmarkSign(b *testing.B) {
	signer, claims := newTestSigner(b, 1), testClaims()
	for b.Loop() {
		if _, err := signer.Sign(claims); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	signer := newTestSigner(b, 1)
	ring, raw := newTestRing(b, "lg-test", signer), sign(b, signer, testClaims())
	for b.Loop() {
		if _, err := ring.Verify(raw); err != nil {
			b.Fatal(err)
		}
	}
}
