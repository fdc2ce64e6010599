package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is who the server runs as. The zero value is the calling user.
type account struct {
	name     string
	uid, gid uint32
}

func currentAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	var missing error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return account{}, fmt.Errorf("account %s: %w", name, err)
		}
		return account{name, uint32(uid), uint32(gid)}, nil
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root and there is no account for it: %w", missing)
}

func (a account) credential() *syscall.Credential {
	if a.name == "" {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

func (a account) own(path string) error {
	if a.name == "" {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// canEnter checks that the account gets through every folder above path. Our own temporary folders are
// opened for passing through (not for listing); anything else is the operator's to decide.
func (a account) canEnter(path string) error {
	if a.name == "" {
		return nil
	}
	temporary := filepath.Clean(os.TempDir()) + string(filepath.Separator)
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if a.enters(info) {
			continue
		}
		if !strings.HasPrefix(dir, temporary) {
			return fmt.Errorf("the account %s, which PostgreSQL runs as, cannot enter %s; choose another folder", a.name, dir)
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return err
		}
	}
	return nil
}

func (a account) enters(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case st.Uid == a.uid:
		return info.Mode()&0o100 != 0
	case st.Gid == a.gid:
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}
