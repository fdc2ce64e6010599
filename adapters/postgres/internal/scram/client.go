package scram

import (
	"crypto/hmac"
	"strconv"
	"strings"
)

// Client logs in with a key in place of a password. First, Final and Verify are called once each, in this order.
type Client struct {
	Verifier  Verifier // that the key belongs to
	ClientKey []byte
	Nonce     string // unguessable, new for each; printable and without a comma
	Binding   []byte // of the connection; nil: none
	Plus      bool   // MechanismPlus is used, which Binding is for; else the server has not offered it

	auth string
}

func (c *Client) header() string {
	switch {
	case c.Plus:
		return "p=" + bindingType + ",,"
	case c.Binding != nil:
		return "y,,"
	}
	return "n,,"
}

// bare names nobody: PostgreSQL takes the name of the start-up message.
func (c *Client) bare() string { return "n=,r=" + c.Nonce }

// First is the first message.
func (c *Client) First() string { return c.header() + c.bare() }

// ErrOtherVerifier is a server that has another verifier than the one that the client was verified with.
var ErrOtherVerifier = &Error{"the server has another verifier"}

// Final takes the server's answer and returns the proof.
func (c *Client) Final(first string) (string, error) {
	fields := strings.SplitN(first, ",", 4)
	if len(fields) < 3 {
		return "", &Error{"the server's first message is malformed"}
	}
	nonce, ok := strings.CutPrefix(fields[0], "r=")
	salt64, ok2 := strings.CutPrefix(fields[1], "s=")
	count, ok3 := strings.CutPrefix(fields[2], "i=")
	salt, err := decode(salt64)
	iterations, err2 := strconv.Atoi(count)
	if !ok || !ok2 || !ok3 || err != nil || err2 != nil {
		return "", &Error{"the server's first message is malformed"}
	}
	if !strings.HasPrefix(nonce, c.Nonce) || len(nonce) == len(c.Nonce) || !printable(nonce) {
		return "", &Error{"the server's nonce does not go on from the client's"}
	}
	if !c.Verifier.sameDerivation(salt, iterations) {
		return "", ErrOtherVerifier
	}
	bound := []byte(c.header())
	if c.Plus {
		bound = append(bound, c.Binding...)
	}
	without := "c=" + encode(bound) + ",r=" + nonce
	c.auth = c.bare() + "," + first + "," + without
	return without + ",p=" + encode(xor(c.ClientKey, sign(c.Verifier.StoredKey, c.auth))), nil
}

// Verify takes the server's last message, which proves that it has the verifier too.
func (c *Client) Verify(final string) error {
	signature, ok := strings.CutPrefix(final, "v=")
	got, err := decode(signature)
	if !ok || err != nil || c.auth == "" || !hmac.Equal(got, sign(c.Verifier.ServerKey, c.auth)) {
		return &Error{"the server does not have the verifier"}
	}
	return nil
}

func serverFirst(nonce string, v Verifier) string {
	return "r=" + nonce + ",s=" + encode(v.Salt) + ",i=" + strconv.Itoa(v.Iterations)
}
