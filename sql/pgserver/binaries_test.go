package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install puts programs that say a release into a folder.
func install(t *testing.T, bin, release string) {
	t.Helper()
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s (Debian %s-1)'\n", release, release)
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBinariesChoosesTheNewestThatWillDo(t *testing.T) {
	for name, c := range map[string]struct {
		lib  map[string]string // folder to release
		path string            // release on the PATH
		want string            // folder below lib, or "path"; empty: refused
		says string
	}{
		"the newest":           {lib: map[string]string{"9.6": "9.6.24", "14": "14.11", "15": "15.6"}, path: "16.2", want: "15"},
		"the oldest that will": {lib: map[string]string{"14": "14.0"}, want: "14"},
		"only old ones":        {lib: map[string]string{"13": "13.14"}, says: "only release 13"},
		"old ones and a path":  {lib: map[string]string{"13": "13.14"}, path: "17.0", want: "path"},
		"old on the path":      {path: "12.3", says: "only release 12"},
		"a beta":               {lib: map[string]string{"19": "19beta1"}, want: "19"},
		"something else":       {lib: map[string]string{"20": "x"}, says: "PostgreSQL 14 or newer"},
		"nothing":              {says: "apt-get install postgresql"},
	} {
		t.Run(name, func(t *testing.T) {
			lib, path := t.TempDir(), t.TempDir()
			for folder, release := range c.lib {
				install(t, filepath.Join(lib, folder, "bin"), release)
			}
			if c.path != "" {
				install(t, path, c.path)
			}
			t.Setenv("PATH", path+":/bin:/usr/bin")
			got, err := binariesBelow(lib)
			want := ""
			switch c.want {
			case "":
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %q, %v; want an error that says %q", got, err, c.says)
				}
				return
			case "path":
				want = path
			default:
				want = filepath.Join(lib, c.want, "bin")
			}
			if got != want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestBinariesThatTheEnvironmentNames(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("POSTGRESQL_BIN", bin)
	for _, release := range []string{"", "13.5"} {
		if release != "" {
			install(t, bin, release)
		}
		if got, err := Binaries(); err == nil || !strings.Contains(err.Error(), "POSTGRESQL_BIN") {
			t.Errorf("release %q: got %q, %v; want it refused", release, got, err)
		}
	}
	install(t, bin, "14.1")
	if got, err := Binaries(); got != bin || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, bin)
	}
}
