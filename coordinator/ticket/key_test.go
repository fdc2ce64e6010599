package ticket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Equal(second) {
		t.Error("the second start has another key")
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestKeyFileThatCannotBeTrusted(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(path string) error
		want  string
	}{
		"readable by others": {func(path string) error { return os.Chmod(path, 0o644) }, "0600"},
		"not PEM":            {func(path string) error { return os.WriteFile(path, []byte("key"), 0o600) }, "not a PEM"},
		"a directory": {func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}, "ticket key"},
	} {
		dir := t.TempDir()
		if _, err := LoadOrCreateKey(dir); err != nil {
			t.Fatal(err)
		}
		if err := test.spoil(filepath.Join(dir, KeyFile)); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadOrCreateKey(dir); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.want)
		}
	}
}
