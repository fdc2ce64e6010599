package admin

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/xdg-go/scram"
)

// ConsoleUser is one who may log in to the console, by a password or by a certificate.
type ConsoleUser struct {
	Name        string
	Verifier    string // SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey, as PostgreSQL keeps it in pg_authid; or empty
	Certificate string // common name of a client certificate that the listener has verified; or empty
	ReadOnly    bool   // may only SHOW
}

// Check says what is wrong with a user.
func (u ConsoleUser) Check() error {
	switch {
	case u.Name == "":
		return errors.New("has no name")
	case (u.Verifier == "") == (u.Certificate == ""):
		return errors.New("needs either verifier or certificate")
	case u.Certificate != "":
		return nil
	}
	_, err := parseVerifier(u.Verifier)
	return err
}

// verifier is what is kept of a password; it does not contain it, but whoever has it can try passwords out.
type verifier = scram.StoredCredentials

const mechanism = "SCRAM-SHA-256"

// parseVerifier reads PostgreSQL's form of a verifier. Its errors do not repeat it.
func parseVerifier(text string) (verifier, error) {
	bad := fmt.Errorf("is no verifier: it looks like %s$4096:salt$StoredKey:ServerKey, and is what PostgreSQL keeps in pg_authid.rolpassword", mechanism)
	parts := strings.Split(text, "$")
	if len(parts) != 3 || parts[0] != mechanism {
		return verifier{}, bad
	}
	iterations, salt, ok1 := strings.Cut(parts[1], ":")
	stored, server, ok2 := strings.Cut(parts[2], ":")
	n, err := strconv.Atoi(iterations)
	if !ok1 || !ok2 || err != nil || n < 1 {
		return verifier{}, bad
	}
	var keys [3][]byte
	for i, encoded := range []string{salt, stored, server} {
		if keys[i], err = base64.StdEncoding.DecodeString(encoded); err != nil || len(keys[i]) == 0 {
			return verifier{}, bad
		}
	}
	if len(keys[1]) != 32 || len(keys[2]) != 32 {
		return verifier{}, bad
	}
	return verifier{KeyFactors: scram.KeyFactors{Salt: string(keys[0]), Iters: n}, StoredKey: keys[1], ServerKey: keys[2]}, nil
}

// dummyVerifier is one that no password fits.
func dummyVerifier() verifier {
	random := []byte(rand.Text() + rand.Text() + rand.Text() + rand.Text())
	return verifier{KeyFactors: scram.KeyFactors{Salt: string(random[:16]), Iters: 4096}, StoredKey: random[16:48], ServerKey: random[48:80]}
}

// login authenticates the client and tells it that it may speak. The client has been told why where there is an error.
func (s *consoleSession) login(ctx context.Context) error {
	user, known := s.console.user(s.user)
	var err error
	if known && user.Certificate != "" {
		err = s.checkCertificate(user)
	} else {
		err = s.checkPassword(ctx, user)
	}
	if err != nil {
		return err
	}
	s.backend.Send(&pgproto3.AuthenticationOk{})
	for _, p := range [][2]string{
		{"server_version", "15.0 (Lychgate console)"},
		{"server_encoding", "UTF8"},
		{"client_encoding", "UTF8"},
		{"DateStyle", "ISO, YMD"},
		{"TimeZone", "UTC"},
		{"standard_conforming_strings", "on"},
		{"integer_datetimes", "on"},
		{"is_superuser", "off"},
	} {
		s.backend.Send(&pgproto3.ParameterStatus{Name: p[0], Value: p[1]})
	}
	s.backend.Send(&pgproto3.BackendKeyData{SecretKey: make([]byte, 4)}) // nothing here can be cancelled
	s.ready()
	return s.backend.Flush()
}

// checkCertificate wants a verified certificate of that name.
func (s *consoleSession) checkCertificate(user ConsoleUser) error {
	if conn, ok := s.conn.(*tls.Conn); ok {
		if chains := conn.ConnectionState().VerifiedChains; len(chains) > 0 && chains[0][0].Subject.CommonName == user.Certificate {
			return nil
		}
	}
	message := fmt.Sprintf("console user %q needs its client certificate", s.user)
	s.fatal(stateIdentity, message)
	return errors.New(message)
}

// checkPassword is SCRAM-SHA-256 without channel binding.
func (s *consoleSession) checkPassword(ctx context.Context, user ConsoleUser) error {
	kept, err := parseVerifier(user.Verifier)
	if err != nil {
		kept = s.console.dummy // no user: the conversation is that of a wrong password
	}
	server, err := scram.SHA256.NewServer(func(string) (verifier, error) { return kept, nil })
	if err != nil {
		return fmt.Errorf("SCRAM: %w", err)
	}
	if err = s.converse(server.NewConversation()); err == nil {
		return nil
	}
	select { // holds its place meanwhile, which bounds how many can be tried
	case <-time.After(wrongPause):
	case <-ctx.Done():
	}
	s.fatal(statePassword, fmt.Sprintf("password authentication failed for console user %q", s.user))
	return err
}

// converse exchanges the messages of SCRAM.
func (s *consoleSession) converse(conversation *scram.ServerConversation) error {
	s.backend.Send(&pgproto3.AuthenticationSASL{AuthMechanisms: []string{mechanism}})
	if err := s.backend.SetAuthType(pgproto3.AuthTypeSASL); err != nil {
		return err
	}
	message, err := s.flushAndReceive()
	if err != nil {
		return err
	}
	first, ok := message.(*pgproto3.SASLInitialResponse)
	if !ok || first.AuthMechanism != mechanism {
		return errors.New("the client does not begin SCRAM-SHA-256")
	}
	challenge, err := conversation.Step(string(first.Data))
	if err != nil {
		return err
	}
	s.backend.Send(&pgproto3.AuthenticationSASLContinue{Data: []byte(challenge)})
	if err := s.backend.SetAuthType(pgproto3.AuthTypeSASLContinue); err != nil {
		return err
	}
	if message, err = s.flushAndReceive(); err != nil {
		return err
	}
	last, ok := message.(*pgproto3.SASLResponse)
	if !ok {
		return errors.New("the client does not go on with SCRAM-SHA-256")
	}
	proof, err := conversation.Step(string(last.Data))
	if err != nil {
		return err
	}
	if !conversation.Valid() {
		return errors.New("the password is wrong")
	}
	s.backend.Send(&pgproto3.AuthenticationSASLFinal{Data: []byte(proof)})
	return s.backend.Flush()
}

func (s *consoleSession) flushAndReceive() (pgproto3.FrontendMessage, error) {
	if err := s.backend.Flush(); err != nil {
		return nil, err
	}
	return s.backend.Receive()
}
