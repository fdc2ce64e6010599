package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Bounds of tokens.
const (
	MaxToken     = 512     // bytes of a token
	maxTokenFile = 4 << 20 // bytes of the file: some 40,000 tokens
)

// readEvery is how often the file is looked at.
const readEvery = 5 * time.Second

// Tokens knows whose a token is. The file has a line for each, the identity and the SHA-256 of the token in
// hexadecimal; what follows a # is not read. The tokens themselves stand nowhere.
type Tokens struct {
	path   string
	logger *slog.Logger
	every  time.Duration
	secret [32]byte // of this process: see digest
	known  atomic.Pointer[tokenFile]

	changes changes
}

type tokenFile struct {
	text       []byte
	identities map[[sha256.Size]byte]lease.Identity // by digest
}

// NewTokens reads the file.
func NewTokens(path string, logger *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, logger: logger, every: readEvery}
	_, _ = rand.Read(t.secret[:]) // never fails (crypto/rand)
	file, err := t.read()
	if err != nil {
		return nil, err
	}
	t.known.Store(file)
	return t, nil
}

// Whose returns the identity that a token stands for. How long it takes tells nothing about the tokens that are known.
func (t *Tokens) Whose(token string) (lease.Identity, bool) {
	if token == "" || len(token) > MaxToken {
		return "", false
	}
	id, ok := t.known.Load().identities[t.digest(sha256.Sum256([]byte(token)))]
	return id, ok
}

// digest is what the map is keyed by: a caller cannot know it, not even of its own token, so the time that a look-up
// takes is of no use to it.
func (t *Tokens) digest(hash [sha256.Size]byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write(hash[:])
	return [sha256.Size]byte(mac.Sum(nil))
}

// Run reads the file anew when it changes, until ctx is done. A file that cannot be used leaves the old tokens.
func (t *Tokens) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.every)
	defer ticker.Stop()
	var said string
	var seen []byte
	for {
		select {
		case <-ticker.C:
			// A file that is being written is not half of it the next time: two looks have to agree.
			text, _ := os.ReadFile(t.path) // what is wrong with it is for reload
			if settled := bytes.Equal(text, seen); settled {
				said = t.reload(said, text)
			}
			seen = text
		case <-ctx.Done():
			return nil
		}
	}
}

// reload returns what is wrong, so that it is logged once. A file that is not as it was seen waits for the next look.
func (t *Tokens) reload(said string, seen []byte) string {
	file, err := t.read()
	switch {
	case err == nil && !bytes.Equal(file.text, seen):
	case err != nil && err.Error() != said:
		t.logger.Error("changed token file not used, the old tokens go on", "error", err)
		return err.Error()
	case err != nil:
		return said
	case !bytes.Equal(file.text, t.known.Load().text):
		t.take(file)
	}
	return ""
}

func (t *Tokens) take(file *tokenFile) {
	t.known.Store(file)
	t.changes.tell()
	t.logger.Info("token file read anew", "tokens", len(file.identities))
}

// Reload reads the file at once. What it has counts when take is called; an error leaves the old tokens.
func (t *Tokens) Reload() (take func(), err error) {
	file, err := t.read()
	if err != nil {
		return nil, err
	}
	return func() { t.take(file) }, nil
}

// Changed is closed when other tokens count. Ask for it before asking for one; nil never is.
func (t *Tokens) Changed() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.changes.next()
}

func (t *Tokens) read() (*tokenFile, error) {
	info, err := os.Stat(t.path)
	if err != nil {
		return nil, err // names the file
	}
	if info.Size() > maxTokenFile {
		return nil, fmt.Errorf("token file %s is longer than %d bytes", t.path, maxTokenFile)
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return nil, err
	}
	file := &tokenFile{text: text, identities: make(map[[sha256.Size]byte]lease.Identity)}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		id, hash, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", t.path, number, err)
		}
		digest := t.digest(hash)
		if other, twice := file.identities[digest]; twice {
			return nil, fmt.Errorf("%s:%d: the token is that of %s too", t.path, number, other)
		}
		file.identities[digest] = id
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("token file %s: %w", t.path, err)
	}
	return file, nil
}

// parseLine never repeats what stands there in its error: it may be a token that somebody put in by mistake.
func parseLine(line string) (lease.Identity, [sha256.Size]byte, error) {
	var hash [sha256.Size]byte
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return "", hash, fmt.Errorf("has %d words, want two: an identity, and the SHA-256 of its token in hexadecimal", len(fields))
	}
	id, err := lease.ParseIdentity(fields[0])
	switch {
	case err != nil:
		return "", hash, err
	case id == lease.Anonymous:
		return "", hash, fmt.Errorf("%s is nobody, and has no token", id)
	}
	sum, err := hex.DecodeString(fields[1])
	if err != nil || len(sum) != len(hash) {
		return "", hash, fmt.Errorf("the second word is not a SHA-256 in 64 hexadecimal digits (printf %%s TOKEN | sha256sum)")
	}
	return id, [sha256.Size]byte(sum), nil
}

// Line is what the file has for a token.
func Line(id lease.Identity, token string) string {
	hash := sha256.Sum256([]byte(token))
	return string(id) + " " + hex.EncodeToString(hash[:])
}
