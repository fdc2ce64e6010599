// Package drivers_test runs what applications really use against the proxy: one program for each driver, in the driver's own
// language, below testdata. Each prints a line for a case, "ok NAME" or "not ok NAME: WHY".
package drivers_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// driver is a program of cases.
type driver struct {
	name       string
	cases      int                                            // how many it has at least
	everywhere bool                                           // what it needs is there wherever the other tests run
	command    func(t *testing.T) (dir string, args []string) // builds what has to be built
}

// source is the absolute path of a file below testdata.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// script is a program that an interpreter runs from its source.
func script(file string, interpreter ...string) func(*testing.T) (string, []string) {
	return func(t *testing.T) (string, []string) {
		return t.TempDir(), append(interpreter, source(t, file))
	}
}

// node runs a program beside the packages of its lock file, which npm fetches.
func node(file string) func(*testing.T) (string, []string) {
	return func(t *testing.T) (string, []string) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(source(t, "node"))); err != nil {
			t.Fatal(err)
		}
		npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
		npm.Dir = dir
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		return dir, []string{"node", file}
	}
}

// goProgram compiles the module of Go's drivers, which is none of the product's, and runs the cases of one.
func goProgram(name string) func(*testing.T) (string, []string) {
	return func(t *testing.T) (string, []string) {
		dir := t.TempDir()
		program := filepath.Join(dir, "cases")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
		build.Dir, build.Env = source(t, "go"), append(os.Environ(), "GOFLAGS=-mod=readonly")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return dir, []string{program, name}
	}
}

// jdbc compiles the cases of Java's driver.
func jdbc(t *testing.T) (string, []string) {
	const jar = "/usr/share/java/postgresql.jar" // Debian's
	dir := t.TempDir()
	sources, err := filepath.Glob(filepath.Join(source(t, "java"), "*.java"))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "javac", append([]string{"-nowarn", "-cp", jar, "-d", dir}, sources...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return dir, []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", jar + ":" + dir, "OnJdbc"}
}

// Debian's own interpreter: its packages are for no other.
const python = "/usr/bin/python3"

var drivers = []driver{
	{name: "psycopg2", cases: 30, command: script("python/on_psycopg2.py", python, "-B")},
	{name: "psycopg", cases: 95, command: script("python/on_psycopg.py", python, "-B")},
	{name: "psycopg-async", cases: 45, command: script("python/on_psycopg_async.py", python, "-B")},
	{name: "sqlalchemy", cases: 72, command: script("python/on_sqlalchemy.py", python, "-B")},
	{name: "pg8000", cases: 50, command: script("python/on_pg8000.py", python, "-B")},
	{name: "libpq-tools", cases: 40, command: script("python/on_tools.py", python, "-B")},
	{name: "asyncpg", cases: 30, command: script("python/on_asyncpg.py", python, "-B")},
	{name: "node-pg", cases: 30, command: node("on_pg.js")},
	{name: "postgres.js", cases: 30, command: node("on_postgresjs.js")},
	{name: "pgx", cases: 90, command: goProgram("pgx")},
	{name: "pgx-stdlib", cases: 40, command: goProgram("pgx-stdlib")},
	{name: "lib-pq", cases: 45, command: goProgram("lib-pq")},
	{name: "jdbc", cases: 130, command: jdbc},
	{name: "ruby-pg", cases: 50, command: script("ruby/on_pg.rb", "/usr/bin/ruby")},
	{name: "php-pgsql", cases: 45, command: script("php/on_pgsql.php", "php")},
	{name: "php-pdo", cases: 50, command: script("php/on_pdo.php", "php")},
	{name: "odbc", cases: 90, command: script("python/on_pyodbc.py", python, "-B")},
}

const patience = 3 * time.Minute

// With LYCHGATE_DRIVERS=all every driver has to be there, as `make test-drivers` sees to; without, only what needs nothing
// but PostgreSQL and Go is run.
func TestDrivers(t *testing.T) {
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			if !d.everywhere && os.Getenv("LYCHGATE_DRIVERS") != "all" {
				t.Skip("make test-drivers runs it")
			}
			dir, args := d.command(t)
			newWorld(t).run(d, dir, args)
		})
	}
}

// run runs a program of cases and makes a subtest of each.
func (w *world) run(d driver, dir string, args []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, w.environment("drivers/"+d.name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if got := report(w.t, out); got < d.cases {
		w.t.Errorf("%d cases, want at least %d", got, d.cases)
	}
	if err != nil {
		w.t.Errorf("%v: %v\n%s", args, err, &stderr)
	}
}

// report makes a subtest of each line and counts them.
func report(t *testing.T, out []byte) (cases int) {
	t.Helper()
	names := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		rest, failed := strings.CutPrefix(line, "not ok ")
		name, why, _ := strings.Cut(rest, ": ")
		if !failed {
			var ok bool
			if name, ok = strings.CutPrefix(line, "ok "); !ok {
				t.Logf("%s", line)
				continue
			}
		}
		if names[name] {
			t.Errorf("two cases are called %q", name)
		}
		names[name] = true
		cases++
		t.Run(name, func(t *testing.T) {
			if failed {
				t.Error(why)
			}
		})
	}
	return cases
}
