// Package scram is SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL speaks it, for somebody in the middle: it verifies a
// client with the verifier that the server keeps of the password, recovers the client's key from the proof, and logs in
// to the server with that key. Neither the password nor anything that would do in its place elsewhere is known before
// the client has proved that it has it.
package scram

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The mechanisms' names.
const (
	Mechanism     = "SCRAM-SHA-256"
	MechanismPlus = "SCRAM-SHA-256-PLUS" // with channel binding
)

// Verifier is what a server keeps of a password.
type Verifier struct {
	Iterations int
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
}

// maxIterations is what PostgreSQL 16 and later allow.
const maxIterations = 1<<31 - 1

// ErrMD5 is said of a verifier for the older method.
var ErrMD5 = errors.New("is of md5: set the password again under password_encryption = 'scram-sha-256'")

// Parse reads a verifier as PostgreSQL writes it into pg_authid.rolpassword.
func Parse(text string) (Verifier, error) {
	if strings.HasPrefix(text, "md5") && len(text) == 35 {
		return Verifier{}, ErrMD5
	}
	bad := errors.New("is not SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey")
	rest, ok := strings.CutPrefix(text, Mechanism+"$")
	head, keys, ok2 := strings.Cut(rest, "$")
	iterations, salt, ok3 := strings.Cut(head, ":")
	stored, server, ok4 := strings.Cut(keys, ":")
	if !ok || !ok2 || !ok3 || !ok4 {
		return Verifier{}, bad
	}
	v := Verifier{}
	var err1, err2, err3, err4 error
	v.Iterations, err1 = strconv.Atoi(iterations)
	v.Salt, err2 = decode(salt)
	v.StoredKey, err3 = decode(stored)
	v.ServerKey, err4 = decode(server)
	if errors.Join(err1, err2, err3, err4) != nil || v.Iterations < 1 || v.Iterations > maxIterations || len(v.Salt) == 0 ||
		len(v.StoredKey) != sha256.Size || len(v.ServerKey) != sha256.Size {
		return Verifier{}, bad
	}
	return v, nil
}

// Mock is a verifier for a name that has none: always the same of one name and secret, of like's shape, and met by no
// password. So whoever asks cannot tell which names there are.
func Mock(secret []byte, name string, like Verifier) Verifier {
	var salt []byte
	for n := 0; len(salt) < len(like.Salt); n++ {
		salt = append(salt, sign(secret, fmt.Sprintf("salt %d of %s", n, name))...)
	}
	return Verifier{
		Iterations: like.Iterations, Salt: salt[:len(like.Salt)],
		StoredKey: sign(secret, "stored key of "+name), ServerKey: sign(secret, "server key of "+name),
	}
}

// sameDerivation reports whether a key of v fits a server that names this salt and count.
func (v Verifier) sameDerivation(salt []byte, iterations int) bool {
	return v.Iterations == iterations && bytes.Equal(v.Salt, salt)
}

func sign(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func xor(a, b []byte) []byte {
	out := make([]byte, len(a))
	for i := range a {
		out[i] = a[i] ^ b[i]
	}
	return out
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) { return base64.StdEncoding.Strict().DecodeString(s) }
