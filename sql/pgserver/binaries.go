package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// oldest is the first release of PostgreSQL that the fence runs on. deploy/setup.sh looks for the same.
const oldest = 14

// debian is where Debian keeps each release's programs, in a folder named for it.
const debian = "/usr/lib/postgresql"

// folderVariable names the environment variable that chooses the programs, for tests of another release.
const folderVariable = "POSTGRESQL_BIN"

// Binaries is the folder of the server's programs: what POSTGRESQL_BIN names, else the newest release below
// /usr/lib/postgresql, else the one on the PATH; one that is older than 14 does not count. The error says what to install.
func Binaries() (string, error) {
	if bin := os.Getenv(folderVariable); bin != "" {
		if release := releaseOf(bin); release < oldest {
			return "", fmt.Errorf("%s: no server programs of PostgreSQL %d or newer in %s", folderVariable, oldest, bin)
		}
		return bin, nil
	}
	return binariesBelow(debian)
}

func binariesBelow(lib string) (string, error) {
	newest, folder := oldest-1, ""
	found, err := filepath.Glob(filepath.Join(lib, "*", "bin"))
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, filepath.Dir(path))
		}
	}
	tooOld := ""
	for _, bin := range found {
		release := releaseOf(bin)
		onPath := filepath.Dir(filepath.Dir(bin)) != lib
		switch {
		case release == 0:
		case release < oldest:
			tooOld = fmt.Sprintf(", only release %d in %s", release, bin)
		case release > newest && (!onPath || folder == ""):
			newest, folder = release, bin
		}
	}
	if folder == "" {
		return "", fmt.Errorf("no server programs of PostgreSQL %d or newer in %s/*/bin or on the PATH%s; "+
			"on Debian and Ubuntu: apt-get install postgresql", oldest, lib, tooOld)
	}
	return folder, nil
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d+)`)

// releaseOf asks the programs in a folder which release they are of; 0 if they are not all there, or do not say.
func releaseOf(bin string) int {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return 0
	}
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	said := versionLine.FindSubmatch(out)
	if said == nil {
		return 0
	}
	release, err := strconv.Atoi(string(said[1]))
	if err != nil {
		return 0
	}
	return release
}
