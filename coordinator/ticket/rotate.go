package ticket

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// NextKeyFile is the name of a private key that is going to follow the one in KeyFile, as that one is kept.
//
// A rotation prepares it, makes its public half known to the cluster, and puts it in place. A node that dies in between
// goes on with the key that it had, which still verifies, and its next rotation with the one that was prepared.
const NextKeyFile = KeyFile + ".next"

// PrepareKey returns the private key that is going to follow the one in dir: one that an earlier rotation left, or a
// new one, which is on the disk when it returns. It changes nothing that signs.
func PrepareKey(dir string) (ed25519.PrivateKey, error) {
	return loadOrCreate(filepath.Join(dir, NextKeyFile))
}

// ReplaceKey puts the prepared key in the place of the one in dir, whose private half is gone for good then. It does
// nothing if that was done before and no other was prepared since.
func ReplaceKey(dir string) error {
	err := os.Rename(filepath.Join(dir, NextKeyFile), filepath.Join(dir, KeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("replace ticket key: %w", err)
	}
	return nil
}
