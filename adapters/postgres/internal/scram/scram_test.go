package scram_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres/internal/scram"
)

// The conversation of RFC 7677, section 3: user "user", password "pencil".
const (
	rfcClientNonce = "rOprNGfwEbeRWgbNEkqO"
	rfcServerNonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	rfcFirst       = "n,,n=user,r=" + rfcClientNonce
	rfcAnswer      = "r=" + rfcClientNonce + rfcServerNonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	rfcFinal       = "c=biws,r=" + rfcClientNonce + rfcServerNonce + ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	rfcLast        = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
)

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// pencil is the password's verifier, and the client's key.
func pencil(t testing.TB) (scram.Verifier, []byte) {
	t.Helper()
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, "pencil", salt, 4096, 32)
	if err != nil {
		t.Fatal(err)
	}
	key := mac(salted, "Client Key")
	stored := sha256.Sum256(key)
	text := fmt.Sprintf("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$%s:%s",
		base64.StdEncoding.EncodeToString(stored[:]), base64.StdEncoding.EncodeToString(mac(salted, "Server Key")))
	v, err := scram.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return v, key
}

func TestConversationOfTheRFC(t *testing.T) {
	v, key := pencil(t)
	s := scram.Server{Verifier: v, Nonce: rfcServerNonce}
	answer, err := s.First(rfcFirst)
	if err != nil || answer != rfcAnswer {
		t.Fatalf("got %q, %v, want %q", answer, err, rfcAnswer)
	}
	last, recovered, err := s.Final(rfcFinal)
	if err != nil || last != rfcLast || !bytes.Equal(recovered, key) {
		t.Errorf("got %q, %x, %v, want %q, %x", last, recovered, err, rfcLast, key)
	}
}

// What one half recovers, the other logs in with.
func TestLogInWithTheRecoveredKey(t *testing.T) {
	v, key := pencil(t)
	for _, binding := range [][]byte{nil, []byte("binding")} {
		s := scram.Server{Verifier: v, Nonce: "server", Binding: binding, Plus: binding != nil}
		c := scram.Client{Verifier: v, ClientKey: key, Nonce: "client", Binding: binding, Plus: binding != nil}
		last, recovered, err := s.Final(step(t, c.Final, step(t, s.First, c.First())))
		if err != nil || !bytes.Equal(recovered, key) {
			t.Fatalf("got %x, %v, want %x", recovered, err, key)
		}
		if err := c.Verify(last); err != nil {
			t.Error(err)
		}
		if err := c.Verify(rfcLast); err == nil {
			t.Error("the last message of another conversation was believed")
		}
	}
}

func step(t testing.TB, do func(string) (string, error), in string) string {
	t.Helper()
	out, err := do(in)
	if err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	return out
}

func TestFirstMessagesThatAreRefused(t *testing.T) {
	v, _ := pencil(t)
	for name, c := range map[string]struct {
		message, want string
		server        scram.Server
	}{
		"no header":              {"n=,r=x", "header", scram.Server{}},
		"empty":                  {"", "header", scram.Server{}},
		"authorization identity": {"n,a=other,n=,r=x", "identity", scram.Server{}},
		"no nonce":               {"n,,n=,r=", "malformed", scram.Server{}},
		"a nonce with a blank":   {"n,,n=,r=a b", "malformed", scram.Server{}},
		"mandatory extension":    {"n,,m=x,n=,r=x", "malformed", scram.Server{}},
		"downgrade":              {"y,,n=,r=x", "in between", scram.Server{Binding: []byte("b")}},
		"binding without plus":   {"p=tls-server-end-point,,n=,r=x", "does not fit", scram.Server{Binding: []byte("b")}},
		"plus without binding":   {"n,,n=,r=x", "does not fit", scram.Server{Binding: []byte("b"), Plus: true}},
		"another binding":        {"p=tls-unique,,n=,r=x", "only the channel binding", scram.Server{Binding: []byte("b"), Plus: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.server.Verifier, c.server.Nonce = v, "s"
			var e *scram.Error
			if _, err := c.server.First(c.message); !errors.As(err, &e) || !strings.Contains(e.Reason, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestFinalMessagesThatAreRefused(t *testing.T) {
	v, _ := pencil(t)
	for name, c := range map[string]struct {
		message string
		wrong   bool
	}{
		"no proof":          {"c=biws,r=" + rfcClientNonce + rfcServerNonce, false},
		"another nonce":     {strings.Replace(rfcFinal, "r=r", "r=x", 1), false},
		"another binding":   {strings.Replace(rfcFinal, "biws", "eSws", 1), false},
		"short proof":       {strings.Replace(rfcFinal, "p=dHzb", "p=", 1), false},
		"wrong proof":       {strings.Replace(rfcFinal, "p=dHzb", "p=dHzc", 1), true},
		"an extension more": {strings.Replace(rfcFinal, ",p=", ",x=1,p=", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scram.Server{Verifier: v, Nonce: rfcServerNonce}
			step(t, s.First, rfcFirst)
			_, key, err := s.Final(c.message)
			var e *scram.Error
			if key != nil || c.wrong != errors.Is(err, scram.ErrWrong) || c.wrong == errors.As(err, &e) {
				t.Errorf("got %x, %v", key, err)
			}
		})
	}
}

func TestServersThatAreNotBelieved(t *testing.T) {
	v, key := pencil(t)
	for name, first := range map[string]string{
		"its own nonce":  "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
		"nothing added":  "r=client,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
		"another salt":   "r=clientx,s=W22ZaJ0SNY7soEsUEjb6gA==,i=4096",
		"fewer rounds":   "r=clientx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
		"not a message":  "hello",
		"salt not coded": "r=clientx,s=!,i=4096",
	} {
		c := scram.Client{Verifier: v, ClientKey: key, Nonce: "client"}
		if proof, err := c.Final(first); err == nil {
			t.Errorf("%s: got %q", name, proof)
		}
	}
	c := scram.Client{Verifier: v, ClientKey: key, Nonce: "client"}
	if err := c.Verify("v=" + base64.StdEncoding.EncodeToString(mac(v.ServerKey, ""))); err == nil {
		t.Error("a server was believed before it had been asked")
	}
}

func TestMockIsStableAndMetByNobody(t *testing.T) {
	like, _ := pencil(t)
	a, again, b := scram.Mock([]byte("k"), "a", like), scram.Mock([]byte("k"), "a", like), scram.Mock([]byte("k"), "b", like)
	if !bytes.Equal(a.Salt, again.Salt) || bytes.Equal(a.Salt, b.Salt) || len(a.Salt) != len(like.Salt) || a.Iterations != like.Iterations {
		t.Errorf("got %+v, %+v, %+v", a, again, b)
	}
	if bytes.Equal(a.Salt, scram.Mock([]byte("other"), "a", like).Salt) {
		t.Error("the salt does not depend on the secret")
	}
}

func TestParseRefuses(t *testing.T) {
	if _, err := scram.Parse("md5" + strings.Repeat("0", 32)); !errors.Is(err, scram.ErrMD5) {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"", "secret", "SCRAM-SHA-256$4096:aa$b:c", "SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$" + strings.Repeat("A", 43) + "=:" + strings.Repeat("A", 43) + "="} {
		if v, err := scram.Parse(text); err == nil {
			t.Errorf("%q: got %+v", text, v)
		}
	}
}

// Whatever a client sends is an error or an answer.
func FuzzServer(f *testing.F) {
	f.Add(rfcFirst, rfcFinal)
	f.Add("p=tls-server-end-point,,n=,r=x", "c=,r=xs,p=")
	v, _ := pencil(f)
	f.Fuzz(func(t *testing.T, first, final string) {
		for _, s := range []scram.Server{{Verifier: v, Nonce: "s"}, {Verifier: v, Nonce: "s", Binding: []byte("b"), Plus: true}} {
			if _, err := s.First(first); err != nil {
				continue
			}
			if _, key, err := s.Final(final); err == nil || key != nil {
				t.Errorf("a proof for the nonce %q was guessed: %q", "s", final)
			}
		}
	})
}

// Whatever a server sends is an error: it does not come upon the signature by chance.
func FuzzClient(f *testing.F) {
	f.Add("r=clientx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=")
	f.Add("r=clientx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,m=x", "e=invalid-proof")
	f.Add("r=client,s=,i=-1", "v=!")
	v, key := pencil(f)
	f.Fuzz(func(t *testing.T, first, final string) {
		c := scram.Client{Verifier: v, ClientKey: key, Nonce: "client"}
		if _, err := c.Final(first); err != nil {
			return
		}
		if err := c.Verify(final); err == nil {
			t.Errorf("a server that does not know the verifier was believed: %q, %q", first, final)
		}
	})
}

// A verifier that is read has all of its parts.
func FuzzParse(f *testing.F) {
	f.Add("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
	f.Add("SCRAM-SHA-256$0:$:")
	f.Add("md5" + strings.Repeat("0", 32))
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := scram.Parse(text); err == nil && (v.Iterations <= 0 || len(v.StoredKey) != 32 || len(v.ServerKey) != 32) {
			t.Errorf("%q is read as %+v", text, v)
		}
	})
}
