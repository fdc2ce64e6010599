package ticket

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
)

func loaded(t *testing.T, load func(string) (ed25519.PrivateKey, error), dir string) ed25519.PrivateKey {
	t.Helper()
	key, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestAKeyIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	old := loaded(t, LoadOrCreateKey, dir)
	next := loaded(t, PrepareKey, dir)
	if next.Equal(old) {
		t.Fatal("the next key is the old one")
	}
	if !loaded(t, LoadOrCreateKey, dir).Equal(old) {
		t.Error("a node that starts while a key is prepared has not the old one")
	}
	if !loaded(t, PrepareKey, dir).Equal(next) {
		t.Error("a rotation that begins again prepares another key")
	}
	for range 2 { // the second does nothing
		if err := ReplaceKey(dir); err != nil {
			t.Fatal(err)
		}
	}
	if !loaded(t, LoadOrCreateKey, dir).Equal(next) {
		t.Error("the next key is not in place")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600 (%v)", info.Mode(), err)
	}
	if other := loaded(t, PrepareKey, dir); other.Equal(next) {
		t.Error("the next rotation prepares the same key again")
	}
}

func TestANextKeyThatOthersCanReadIsRefused(t *testing.T) {
	dir := t.TempDir()
	loaded(t, PrepareKey, dir)
	if err := os.Chmod(filepath.Join(dir, NextKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := PrepareKey(dir); err == nil {
		t.Error("it was taken")
	}
}
