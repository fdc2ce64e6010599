package postgres_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func TestUnmodifiedPsql(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	dsn := p.dsn("app", with(w.ticket("ledger", 1)))
	got := psql(t, dsn, "begin", "insert into entry values (1, 'a')", "commit", "select count(*) from entry")
	if want := "BEGIN\nINSERT 0 1\nCOMMIT\n1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	psql(t, dsn, `\copy (select 5, 'copied') to '`+filepath.Join(t.TempDir(), "out")+`'`, `\d entry`, `\dt`)
	psql(t, p.dsn("app", with(w.ticket("ledger", 2))), "select 1")
	out, err := psqlCommand(dsn, "select 1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "fenced: the token is stale") || !strings.Contains(string(out), "floor 2") {
		t.Errorf("stale ticket: %v\n%s", err, out)
	}
}

// pgbench runs the real one through the proxy and returns transactions per second.
func pgbench(t testing.TB, host string, port int, database, options string, args ...string) float64 {
	t.Helper()
	bin, err := pgserver.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(filepath.Join(bin, "pgbench"), append(args, "-h", host, "-p", strconv.Itoa(port), "-U", "app", "-n", database)...)
	cmd.Env = append(os.Environ(), "PGOPTIONS="+options, "PGSSLMODE=disable")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pgbench %v: %v\n%s", args, err, out)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if value, ok := strings.CutPrefix(line, "tps = "); ok {
			tps, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return tps
		}
	}
	t.Fatalf("pgbench printed no rate:\n%s", out)
	return 0
}

// benchTables makes pgbench's tables, owned by app.
func (w *world) benchTables() {
	w.t.Helper()
	bin, err := pgserver.Binaries()
	if err != nil {
		w.t.Fatal(err)
	}
	pgtest.Exec(w.t, w.admin, "grant all on schema public to app")
	cmd := osexec.Command(filepath.Join(bin, "pgbench"), "-i", "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(server.Port()), "-U", "app", w.name)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

func TestUnmodifiedPgbench(t *testing.T) {
	w := newWorld(t)
	w.benchTables()
	p := w.proxy(nil)
	host, port := hostPort(t, p.addr)
	for _, mode := range []string{"simple", "extended", "prepared"} {
		t.Run(mode, func(t *testing.T) {
			for _, clients := range []string{"1", "8"} {
				pgbench(t, host, port, w.name, "-c fence.ticket="+w.ticket("bench", 1), "-M", mode, "-c", clients, "-t", "20")
			}
		})
	}
	var n int
	if err := w.admin.QueryRow(t.Context(), "select count(*) from pgbench_history").Scan(&n); err != nil || n != 3*(20+160) {
		t.Errorf("%d transactions, %v", n, err)
	}
}

func hostPort(t testing.TB, addr string) (string, int) {
	t.Helper()
	host, text, _ := strings.Cut(addr, ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
