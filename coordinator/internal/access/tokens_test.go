package access

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// log is read while it is written.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) says(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), what)
}

func tokenPath(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// In one step: the looks of these tests are milliseconds apart.
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func TestTokensStandForIdentities(t *testing.T) {
	path := tokenPath(t, "# who\n"+Line("acme:worker", "s3cret")+" # rotated in May\n\n\t"+Line("acme:worker", "n3xt")+"\n"+Line("root", "adm1n"))
	tokens, err := NewTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]lease.Identity{
		"s3cret": "acme:worker", "n3xt": "acme:worker", "adm1n": "root",
		"": "", "S3cret": "", "s3cret ": "", strings.Repeat("x", MaxToken+1): "",
		strings.Fields(Line("root", "adm1n"))[1]: "", // the hash is not the token
	} {
		if got, ok := tokens.Whose(token); got != want || ok != (want != "") {
			t.Errorf("%.20q is of %q, want %q", token, got, want)
		}
	}
}

func TestTokenFilesThatCannotBeMeant(t *testing.T) {
	good := Line("acme:worker", "s3cret")
	for name, test := range map[string]struct{ text, said string }{
		"one word":         {good + "\nacme:worker", ":2: has 1 words"},
		"the token itself": {"acme:worker s3cret", ":1: the second word is not a SHA-256"},
		"a hash cut":       {good[:len(good)-2], ":1: the second word is not a SHA-256"},
		"a bad identity":   {strings.Replace(good, "acme:worker", "acme:*", 1), ":1: identity has the character"},
		"anonymous":        {strings.Replace(good, "acme:worker", "anonymous", 1), ":1: anonymous is nobody"},
		"of two":           {good + "\n" + Line("acme:other", "s3cret"), ":2: the token is that of acme:worker too"},
		"too long":         {strings.Repeat("#", maxTokenFile+1), "is longer than"},
	} {
		_, err := NewTokens(tokenPath(t, test.text), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.said)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells a token: %v", name, err)
		}
	}
	if _, err := NewTokens(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestTokensAreReadAnew(t *testing.T) {
	var out log
	path := tokenPath(t, Line("acme:worker", "old"))
	tokens, err := NewTokens(path, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tokens.every = 2 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = tokens.Run(ctx) })
	defer func() { cancel(); wg.Wait() }()
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !done(); <-time.After(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never: " + what)
			}
		}
	}
	whose := func(token string) lease.Identity { id, _ := tokens.Whose(token); return id }
	write(t, path, Line("acme:worker", "new"))
	until("the new token counts", func() bool { return whose("new") == "acme:worker" })
	if whose("old") != "" {
		t.Error("the old token still counts")
	}
	write(t, path, "rubbish")
	until("the fault is in the log", func() bool { return out.says("changed token file not used") })
	if whose("new") != "acme:worker" {
		t.Error("a bad file took the tokens away")
	}
	write(t, path, "")
	until("no token counts", func() bool { return whose("new") == "" })
}
