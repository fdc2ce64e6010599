package ticket

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-jose/go-jose/v4"
)

// Key is the public half of a node's signing key.
type Key struct {
	ID     string // KeyID(Public)
	Node   string // whose it is; for people
	Public ed25519.PublicKey
}

// KeyID is the JWK thumbprint (RFC 7638, SHA-256) of a public key: 43 characters that depend on nothing else.
func KeyID(public ed25519.PublicKey) string {
	jwk := jose.JSONWebKey{Key: public}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		panic("ticket: thumbprint of an Ed25519 key: " + err.Error()) // only for a key of a wrong length
	}
	return base64.RawURLEncoding.EncodeToString(sum)
}

// KeyFile is the name, in a node's directory, of its private key: PEM, PKCS #8, readable by its owner only.
// It is never copied into the log, a snapshot or a backup.
const KeyFile = "ticket.key"

// LoadOrCreateKey reads the private key of a node from dir, and makes it on the first start. A file that others
// can read is refused, since whoever has it can forge tickets.
func LoadOrCreateKey(dir string) (ed25519.PrivateKey, error) {
	return loadOrCreate(filepath.Join(dir, KeyFile))
}

func loadOrCreate(path string) (ed25519.PrivateKey, error) {
	key, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(path)
	}
	return key, err
}

func loadKey(path string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("ticket key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("ticket key %s has mode %04o: others can read it and forge tickets; set it to 0600", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ticket key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("ticket key %s is not a PEM private key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("ticket key %s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("ticket key %s is a %T, not Ed25519", path, parsed)
	}
	return key, nil
}

func createKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make ticket key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make ticket key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := writeDurably(path, text); err != nil {
		return nil, fmt.Errorf("make ticket key: %w", err)
	}
	return key, nil
}

// writeDurably makes a file that is there whole or not at all, also after a power cut. CreateTemp gives it 0600.
func writeDurably(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
