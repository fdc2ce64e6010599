package proxybench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// PgBouncer finds the peer's program: on the PATH, or where Debian puts it, which is not on everybody's.
func PgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("PgBouncer is not on the PATH and not in /usr/sbin; on Debian and Ubuntu: apt-get install pgbouncer")
}

// startPgBouncer starts it with default settings in session mode, without TLS and passwords, as everybody else here. It
// refuses root, so it runs under the server's account.
func (r *run) startPgBouncer(ctx context.Context) (target, error) {
	addrs, err := freeport.Addresses(1)
	if err != nil {
		return target{}, err
	}
	t := target{name: "PgBouncer", address: addrs[0]}
	host, port := t.hostPort()
	dir := filepath.Join(r.postgres.Dir(), filepath.Base(r.path("pgbouncer"))) // where the account gets through
	if err := os.Mkdir(dir, 0o755); err != nil {
		return target{}, err
	}
	users, config := filepath.Join(dir, "users.txt"), filepath.Join(dir, "pgbouncer.ini")
	connections := r.size.idle + spareConnections
	text := fmt.Sprintf(`[databases]
%s = host=%s port=%d
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = session
max_client_conn = %d
default_pool_size = %d
`, database, r.postgres.Host(), r.postgres.Port(), host, port, users, connections, connections)
	err = errors.Join(os.WriteFile(users, fmt.Appendf(nil, "%q \"\"\n", role), 0o644), os.WriteFile(config, []byte(text), 0o644))
	if err != nil {
		return target{}, err
	}
	log, err := os.Create(filepath.Join(dir, "pgbouncer.log"))
	if err != nil {
		return target{}, err
	}
	defer log.Close() // the child has its own
	// It needs two files a connection; a Go program takes what it may have by itself.
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n "$(ulimit -Hn)" && exec "$0" "$@"`, r.config.PgBouncer, config)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, pgEnvironment(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.postgres.Credential()}
	if t.process, err = r.children.Start(cmd); err != nil {
		return target{}, err
	}
	return t, stage.Await(ctx, "start of PgBouncer", func() (bool, error, error) {
		if t.process.Ended() {
			said, _ := os.ReadFile(log.Name())
			return false, nil, fmt.Errorf("PgBouncer ended: %w: %s", t.process.Err(), tailOf(string(said)))
		}
		conn, lacking := pgx.Connect(ctx, t.dsn(""))
		if lacking != nil {
			return false, lacking, nil
		}
		return true, nil, conn.Close(ctx)
	})
}
