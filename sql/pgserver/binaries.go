package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Binaries is the folder of the server's programs: the newest of /usr/lib/postgresql, where Debian keeps
// them, else the one on the PATH. The error says what to install.
func Binaries() (string, error) {
	newest, folder := 0, ""
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, bin := range found {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
		if err == nil && version > newest && complete(bin) {
			newest, folder = version, bin
		}
	}
	if folder != "" {
		return folder, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	return "", errors.New("no PostgreSQL server programs found in /usr/lib/postgresql/*/bin or on the PATH; " +
		"on Debian and Ubuntu: apt-get install postgresql")
}

func complete(bin string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return false
		}
	}
	return true
}
