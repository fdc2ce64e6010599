package postgres

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/scram"
)

// Verifiers are the SCRAM verifiers of the users whom the proxy lets log in, out of a file that PgBouncer can read too:
// a line "user" "SCRAM-SHA-256$…" each, as PostgreSQL keeps it in pg_authid.rolpassword; empty lines and those that
// begin with ; or # are passed over. The file is read again when it has changed.
//
// The first line is also the secret from which the conversations with unknown users are made. As long as it stays, and
// is the same for all proxies, these look the same each time and everywhere.
type Verifiers struct {
	path string

	mu    sync.Mutex
	taken fileState
	users map[string]scram.Verifier
	first scram.Verifier
	mock  []byte
}

type fileState struct {
	size     int64
	modified time.Time
}

// maxVerifiers bounds the file.
const maxVerifiers = 16 << 20

// OpenVerifiers reads the file, in which every line must be right.
func OpenVerifiers(path string) (*Verifiers, error) {
	v := &Verifiers{path: path}
	return v, v.refresh()
}

// lookup returns the verifier of a user, or what stands in for that of an unknown one. stale says that the file has
// changed and cannot be read; what it said before counts then.
func (v *Verifiers) lookup(user string) (verifier scram.Verifier, known bool, stale error) {
	stale = v.refresh()
	v.mu.Lock()
	defer v.mu.Unlock()
	verifier, known = v.users[user]
	if !known {
		verifier = scram.Mock(v.mock, user, v.first)
	}
	return verifier, known, stale
}

func (v *Verifiers) refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := os.Stat(v.path)
	if err != nil {
		return err
	}
	now := fileState{info.Size(), info.ModTime()}
	if now == v.taken {
		return nil
	}
	if err := checkVerifierFile(info); err != nil {
		return fmt.Errorf("%s: %w", v.path, err)
	}
	text, err := os.ReadFile(v.path)
	if err != nil {
		return err
	}
	if err := v.parse(text); err != nil {
		return fmt.Errorf("%s: %w", v.path, err)
	}
	v.taken = now
	return nil
}

func checkVerifierFile(info fs.FileInfo) error {
	switch {
	case info.Mode().Perm()&0o007 != 0:
		return errors.New("everybody may read or write it: chmod 600")
	case info.Size() > maxVerifiers:
		return fmt.Errorf("is of %d bytes, more than %d", info.Size(), maxVerifiers)
	}
	return nil
}

// parse takes the text, whole or not at all.
func (v *Verifiers) parse(text []byte) error {
	users := map[string]scram.Verifier{}
	var first scram.Verifier
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.ContainsRune(";#", rune(line[0])) {
			continue
		}
		user, verifier, err := parseVerifierLine(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if _, twice := users[user]; twice {
			return fmt.Errorf("line %d: user %q stands there twice", n, user)
		}
		if len(users) == 0 {
			first = verifier
		}
		users[user] = verifier
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(users) == 0 {
		return errors.New("has no user")
	}
	secret := sha256.Sum256(slices.Concat([]byte("lychgate mock"), first.Salt, first.StoredKey, first.ServerKey))
	v.users, v.first, v.mock = users, first, secret[:]
	return nil
}

func parseVerifierLine(line string) (string, scram.Verifier, error) {
	user, rest, ok := quoted(line)
	text, rest, ok2 := quoted(strings.TrimSpace(rest))
	if !ok || !ok2 || strings.TrimSpace(rest) != "" || user == "" {
		return "", scram.Verifier{}, errors.New(`is not "user" "verifier", both in quotes`)
	}
	verifier, err := scram.Parse(text)
	if err != nil {
		return "", scram.Verifier{}, fmt.Errorf("the verifier of %q %w", user, err)
	}
	return user, verifier, nil
}

// quoted takes a string in double quotes, in which they are doubled, from the beginning of s.
func quoted(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, `"`)
	for ok {
		var part string
		if part, s, ok = strings.Cut(s, `"`); !ok {
			break
		}
		value += part
		if !strings.HasPrefix(s, `"`) {
			return value, s, true
		}
		value, s = value+`"`, s[1:]
	}
	return "", "", false
}
