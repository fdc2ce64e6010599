package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// initdb makes the cluster if there is none, beside its place first: what was interrupted is made anew.
func (s *Server) initdb(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := filepath.Join(s.dir, "data.new")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := s.account.own(fresh); err != nil {
		return err
	}
	if err := s.account.canEnter(fresh); err != nil {
		return err
	}
	// Not synced to disk: until the server has started there is nothing to lose.
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", fresh, "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = fresh, environment(), &syscall.SysProcAttr{Credential: s.account.credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := appendLine(filepath.Join(fresh, "postgresql.conf"), "include 'lychgate.conf'"); err != nil {
		return err
	}
	return os.Rename(fresh, s.data())
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + line + "\n")
	return errors.Join(err, f.Close())
}

// writeSettings writes what this run of the server reads.
func (s *Server) writeSettings() error {
	settings := map[string]string{
		"listen_addresses":        s.Host(),
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.socket,
		"shared_buffers":          "32MB",
		"max_wal_size":            "256MB",
	}
	maps.Copy(settings, s.cfg.Settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	if err := s.writeFile("lychgate.conf", b.String()); err != nil {
		return err
	}
	lines := append(slices.Clone(s.cfg.HBA),
		"local all all trust", "host all all 127.0.0.1/32 trust",
		"local replication all trust", "host replication all 127.0.0.1/32 trust")
	return s.writeFile("pg_hba.conf", strings.Join(lines, "\n")+"\n")
}

func (s *Server) writeFile(name, text string) error {
	path := filepath.Join(s.data(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return s.account.own(path)
}
