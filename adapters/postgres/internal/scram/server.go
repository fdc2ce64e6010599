package scram

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"strings"
)

// ErrWrong is the proof of somebody who does not have the password.
var ErrWrong = errors.New("the proof is wrong")

// Error is a message that is none, or that does not fit its connection.
type Error struct{ Reason string }

func (e *Error) Error() string { return "SCRAM: " + e.Reason }

// Server verifies one client. First and Final are called once each, in this order.
type Server struct {
	Verifier Verifier
	Nonce    string // unguessable, new for each; printable and without a comma
	Binding  []byte // of the connection, if MechanismPlus was offered; else nil
	Plus     bool   // the client has chosen MechanismPlus

	header, bare, first, nonce string
}

// First takes the client's first message and returns the answer.
func (s *Server) First(message string) (string, error) {
	flag, rest, ok := strings.Cut(message, ",")
	authzid, bare, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 {
		return "", &Error{"the client's first message has no header"}
	}
	if err := s.checkFlag(flag); err != nil {
		return "", err
	}
	if authzid != "" {
		return "", &Error{"an authorization identity is not supported"}
	}
	name, nonce, ok := strings.Cut(bare, ",")
	nonce, _, _ = strings.Cut(nonce, ",") // extensions are passed over
	nonce, ok2 = strings.CutPrefix(nonce, "r=")
	if !ok || !ok2 || !strings.HasPrefix(name, "n=") || !printable(nonce) {
		return "", &Error{"the client's first message is malformed"}
	}
	s.header, s.bare, s.nonce = message[:len(message)-len(bare)], bare, nonce+s.Nonce
	s.first = serverFirst(s.nonce, s.Verifier)
	return s.first, nil
}

// checkFlag holds what the client says of channel binding against what it was offered.
func (s *Server) checkFlag(flag string) error {
	switch {
	case s.Plus && flag == "p="+bindingType, !s.Plus && flag == "n", !s.Plus && flag == "y" && s.Binding == nil:
		return nil
	case !s.Plus && flag == "y":
		return &Error{"the client supports channel binding and believes that it was not offered: somebody is in between"}
	case strings.HasPrefix(flag, "p=") && s.Plus:
		return &Error{"only the channel binding " + bindingType + " is supported"}
	}
	return &Error{"the channel binding flag does not fit the mechanism"}
}

// Final takes the client's proof, and returns the last answer and the client's key. ErrWrong: it has not the password.
func (s *Server) Final(message string) (answer string, clientKey []byte, err error) {
	i := strings.LastIndex(message, ",p=")
	if i < 0 {
		return "", nil, &Error{"the client's final message has no proof"}
	}
	without := message[:i]
	proof, err := decode(message[i+len(",p="):])
	if err != nil || len(proof) != sha256.Size {
		return "", nil, &Error{"the client's proof is malformed"}
	}
	binding, nonce, _ := strings.Cut(without, ",")
	nonce, _, _ = strings.Cut(nonce, ",")
	if nonce != "r="+s.nonce {
		return "", nil, &Error{"the nonce is not the one of this conversation"}
	}
	bound := []byte(s.header)
	if s.Plus {
		bound = append(bound, s.Binding...)
	}
	if binding != "c="+encode(bound) {
		return "", nil, &Error{"the channel binding is that of another connection"}
	}
	auth := s.bare + "," + s.first + "," + without
	key := xor(proof, sign(s.Verifier.StoredKey, auth))
	if stored := sha256.Sum256(key); !hmac.Equal(stored[:], s.Verifier.StoredKey) {
		return "", nil, ErrWrong
	}
	return "v=" + encode(sign(s.Verifier.ServerKey, auth)), key, nil
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' })
}
