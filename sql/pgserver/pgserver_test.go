package pgserver_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func TestCrashKeepsWhatWasCommittedAndRestartServesAgain(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{Dir: t.TempDir(), Settings: map[string]string{"work_mem": "7MB"}})
	conn := pgtest.Connect(t, s.DSN("postgres", "postgres"))
	pgtest.Exec(t, conn, "create table kept (n int); insert into kept values (41)")
	port := s.Port()

	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), s.DSN("postgres", "postgres")); err == nil {
		t.Fatal("a crashed server accepted a connection")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Port() != port {
		t.Errorf("port after the restart: got %d, want %d", s.Port(), port)
	}
	var n int
	var memory string
	conn = pgtest.Connect(t, "host="+s.SocketDir()+" port="+strconv.Itoa(port)+" user=postgres dbname=postgres")
	if err := conn.QueryRow(t.Context(), "select n, current_setting('work_mem') from kept").Scan(&n, &memory); err != nil {
		t.Fatal(err)
	}
	if n != 41 || memory != "7MB" {
		t.Errorf("after the crash: got %d and work_mem %s, want 41 and 7MB", n, memory)
	}
}

func TestStopIsIdempotentAndRemovesWhatIsTemporary(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{s.Dir(), s.SocketDir()} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s after Stop: got %v, want it gone", dir, err)
		}
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a server stopped for good was started again")
	}
}

func TestFolderOfALivingServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	pgtest.Start(t, pgserver.Config{Dir: dir})
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second server on one folder: got %v, want it refused as in use", err)
	}
}

func TestWrongSettingIsReportedWithTheServersLog(t *testing.T) {
	_, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the name of the wrong setting", err)
	}
}

// A child process of this test starts a server and is killed; what it leaves must be gone or taken over.
func TestServerOfAKilledProcessIsTakenOver(t *testing.T) {
	if dir := os.Getenv("PGSERVER_CHILD_DIR"); dir != "" {
		childServer(t, dir)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "PGSERVER_CHILD_DIR="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 5)
	_, err = out.Read(ready)
	old := postmaster(t, dir)
	killErr := child.Process.Kill()
	_ = child.Wait() // it was killed
	if err != nil || killErr != nil || string(ready) != "ready" {
		t.Fatalf("child said %q, %v, %v", ready, err, killErr)
	}
	pgtest.Connect(t, pgtest.Start(t, pgserver.Config{Dir: dir}).DSN("postgres", "postgres"))
	if alive(old) {
		t.Errorf("the killed process's server (%d) still runs", old)
	}
}

// The kernel does not end it everywhere: then the next start does.
func TestServerLeftRunningIsEnded(t *testing.T) {
	dir := t.TempDir()
	left := pgtest.Start(t, pgserver.Config{Dir: dir})
	old := postmaster(t, dir)
	if err := left.Forget(); err != nil {
		t.Fatal(err)
	}
	pgtest.Connect(t, pgtest.Start(t, pgserver.Config{Dir: dir}).DSN("postgres", "postgres"))
	if alive(old) {
		t.Errorf("the server left running (%d) still runs", old)
	}
}

func childServer(t *testing.T, dir string) {
	if _, err := pgserver.Start(context.Background(), pgserver.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("ready"); err != nil {
		t.Fatal(err)
	}
	select {}
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Error(err)
		return 0
	}
	pid, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	if err != nil {
		t.Error(err)
	}
	return pid
}

// alive waits a moment for a process that is on its way out; a zombie nobody has waited for is not alive.
func alive(pid int) bool {
	for range 1000 {
		if _, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}
