// Package deploy holds what runs Lychgate elsewhere than in its own processes. The package itself is only tests.
package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// machine is what setup.sh can see: a PATH and a folder of PostgreSQL releases of the test's own.
type machine struct {
	t        *testing.T
	path     string
	releases string
}

// newMachine has the tools that the script itself uses, and an apt-get that only notes that it was called.
func newMachine(t *testing.T, uid int) *machine {
	t.Helper()
	m := &machine{t: t, path: t.TempDir(), releases: t.TempDir()}
	for _, tool := range []string{"bash", "dirname", "ls", "readlink", "sed", "sort"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.path, tool)); err != nil {
			t.Fatal(err)
		}
	}
	m.program(m.path, "id", "echo "+strconv.Itoa(uid))
	m.program(m.path, "apt-get", "echo called >"+m.installed())
	return m
}

func (m *machine) installed() string { return filepath.Join(m.path, "installed") }

// pgbouncer is where it lies when it is not on the PATH.
func (m *machine) pgbouncer() string { return filepath.Join(m.releases, "sbin", "pgbouncer") }

func (m *machine) program(dir, name, script string) {
	m.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// programs puts commands into the PATH that are only looked for.
func (m *machine) programs(names ...string) {
	m.t.Helper()
	for _, name := range names {
		m.program(m.path, name, "exit 1")
	}
}

// postgres puts a release's programs into a folder.
func (m *machine) postgres(dir, release string) {
	m.t.Helper()
	m.program(dir, "postgres", fmt.Sprintf("echo 'postgres (PostgreSQL) %s'", release))
	m.program(dir, "initdb", "exit 1")
	m.program(dir, "pgbench", "exit 1")
}

func (m *machine) debian(release string) { m.postgres(m.bin(release), release) }

func (m *machine) bin(release string) string { return filepath.Join(m.releases, release, "bin") }

// setup runs the script, and makes sure that it has installed nothing.
func (m *machine) setup() (output string, err error) {
	m.t.Helper()
	cmd := exec.Command("/bin/bash", "setup.sh")
	cmd.Env = []string{"PATH=" + m.path, "POSTGRESQL_LIB=" + m.releases, "PGBOUNCER=" + m.pgbouncer()}
	out, err := cmd.CombinedOutput()
	if _, statErr := os.Stat(m.installed()); statErr == nil {
		m.t.Error("apt-get was called")
	}
	return string(out), err
}

func TestSetupFindsWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *machine)
		want    func(m *machine) string
	}{
		"the newest release": {
			func(m *machine) { m.debian("9.6"); m.debian("14"); m.debian("15") },
			func(m *machine) string { return m.bin("15") },
		},
		"PgBouncer where Debian puts it": {
			func(m *machine) {
				m.debian("15")
				if err := os.Remove(filepath.Join(m.path, "pgbouncer")); err != nil {
					m.t.Fatal(err)
				}
				m.program(filepath.Dir(m.pgbouncer()), "pgbouncer", "exit 1")
			},
			func(m *machine) string { return m.bin("15") },
		},
		"on the PATH": {
			func(m *machine) { m.debian("13"); m.postgres(m.path, "16.2") },
			func(m *machine) string { return m.path },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 0) // also root installs nothing then
			m.programs("psql", "pgbouncer", "clang", "curl", "openssl")
			c.prepare(m)
			out, err := m.setup()
			if want := "setup: PostgreSQL in " + c.want(m) + "\n"; err != nil || out != want {
				t.Errorf("got %q, %v; want %q", out, err, want)
			}
		})
	}
}

func TestSetupTellsOrdinaryUsersOneCommand(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *machine)
		want    string
	}{
		"nothing is there": {func(*machine) {}, "postgresql pgbouncer gcc libc6-dev curl openssl"},
		"an old release":   {func(m *machine) { m.debian("13"); m.programs("psql", "pgbouncer", "gcc", "curl", "openssl") }, "postgresql"},
		"no psql":          {func(m *machine) { m.debian("15"); m.programs("pgbouncer", "gcc", "curl", "openssl") }, "postgresql"},
		"no PgBouncer":     {func(m *machine) { m.debian("15"); m.programs("psql", "gcc", "curl", "openssl") }, "pgbouncer"},
		"no compiler":      {func(m *machine) { m.debian("15"); m.programs("psql", "pgbouncer", "curl", "openssl") }, "gcc libc6-dev"},
		"no curl":          {func(m *machine) { m.debian("15"); m.programs("psql", "pgbouncer", "clang", "openssl") }, "curl"},
		"no openssl":       {func(m *machine) { m.debian("15"); m.programs("psql", "pgbouncer", "clang", "curl") }, "openssl"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 1000)
			c.prepare(m)
			out, err := m.setup()
			want := "install with:  sudo apt-get install -y --no-install-recommends " + c.want + "\n"
			if err == nil || strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, want) {
				t.Errorf("got %q, %v; want one line that ends %q", out, err, want)
			}
		})
	}
}

func TestSetupElsewhereThanOnDebian(t *testing.T) {
	m := newMachine(t, 0)
	if err := os.Remove(filepath.Join(m.path, "apt-get")); err != nil {
		t.Fatal(err)
	}
	out, err := m.setup()
	if err == nil || !strings.Contains(out, "PostgreSQL 14 or newer") {
		t.Errorf("got %q, %v", out, err)
	}
}
