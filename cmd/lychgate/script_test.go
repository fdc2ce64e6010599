package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lychgate/lychgate/sql/pgserver"
)

// storyTimeout bounds whatever one line of a story waits for.
const storyTimeout = 2 * time.Minute

// The stories run the real program: this test binary, called lychgate.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lychgate": main})
}

func TestStories(t *testing.T) {
	bin, err := pgserver.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("PSQLRC", os.DevNull)
			env.Setenv("EXAMPLES", filepath.Join(moduleRoot(t), "deploy", "config"))
			env.Values[devKey{}] = new(devRun)
			// PostgreSQL may run under an account of its own, which has to get through to its folder.
			return os.Chmod(env.WorkDir, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":    cmdStatus,
			"postgres":  cmdPostgres,
			"dev":       cmdDev,
			"devstop":   cmdDevStop,
			"get":       cmdGet,
			"post":      cmdPost,
			"field":     cmdField,
			"refused":   cmdRefused,
			"watch":     cmdWatch,
			"certs":     cmdCerts(t),
			"freeports": cmdFreePorts,
			"until":     cmdUntil,
			"envsubst":  cmdEnvSubst,
		},
	})
}

// status CODE COMMAND... runs a command that has to end with a certain code.
func cmdStatus(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: status CODE COMMAND...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// postgres HBA... starts a throw-away server, with these lines of pg_hba.conf first, and points the variables
// of libpq at it; $PG_DSN and $PG_APP_DSN are its superuser's.
func cmdPostgres(ts *testscript.TestScript, _ bool, hba []string) {
	ctx, cancel := context.WithTimeout(context.Background(), storyTimeout)
	defer cancel()
	server, err := pgserver.Start(ctx, pgserver.Config{Settings: map[string]string{"fsync": "off"}, HBA: hba})
	ts.Check(err)
	ts.Defer(func() { ts.Check(server.Stop()) })
	ts.Setenv("PG_DSN", server.DSN("postgres", "postgres"))
	ts.Setenv("PG_APP_DSN", server.DSN("postgres", "app"))
	ts.Setenv("PGHOST", server.Host())
	ts.Setenv("PGPORT", strconv.Itoa(server.Port()))
	ts.Setenv("PGUSER", "postgres")
	ts.Setenv("PGDATABASE", "postgres")
}

// get URL prints the body of an answer with status 200; "! get" wants another status.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: get URL")
	}
	answer(ts, neg, http.MethodGet, args[0], "")
}

// post URL BODY posts JSON and prints the body of an answer with status 200; "! post" wants another status.
func cmdPost(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: post URL BODY")
	}
	answer(ts, neg, http.MethodPost, args[0], args[1])
}

func answer(ts *testscript.TestScript, neg bool, method, url, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), storyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	ts.Check(err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	ts.Check(err)
	if good := response.StatusCode == http.StatusOK; good == neg {
		ts.Fatalf("%s %s: %s\n%s", method, url, response.Status, text)
	}
	_, err = ts.Stdout().Write(text)
	ts.Check(err)
}

// field VARIABLE FILE NAME sets a variable to a top-level string of a JSON file, which may be "stdout".
func cmdField(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: field VARIABLE FILE NAME")
	}
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &object))
	text, ok := object[args[2]].(string)
	if !ok {
		ts.Fatalf("%s has no string %q", args[1], args[2])
	}
	ts.Setenv(args[0], text)
}

// refused SQLSTATE TICKET SQL connects as the variables of libpq say, with a ticket, and wants that or the
// statement to be refused with a certain SQLSTATE.
func cmdRefused(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: refused SQLSTATE TICKET SQL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyTimeout)
	defer cancel()
	config, err := pgx.ParseConfig("host=" + ts.Getenv("PGHOST") + " port=" + ts.Getenv("PGPORT") +
		" user=" + ts.Getenv("PGUSER") + " dbname=" + ts.Getenv("PGDATABASE") + " sslmode=disable")
	ts.Check(err)
	if args[1] != "" {
		config.RuntimeParams["fence.ticket"] = args[1]
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		_, err = conn.Exec(ctx, args[2])
		_ = conn.Close(ctx)
	}
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refusal.Code != args[0] {
		ts.Fatalf("got %v, want a refusal with SQLSTATE %s", err, args[0])
	}
	ts.Logf("%s: %s (%s)", refusal.Code, refusal.Message, refusal.Detail)
}
