// Package ticket is the signed form of a grant: what a worker shows to a proxy, or to any service of its own,
// to prove which fencing token it holds.
//
// A ticket is a JWS in compact form (RFC 7515) with the algorithm pinned to EdDSA on Ed25519 (RFC 8037). The keys
// that verify it are published as a JWK set (RFC 7517) by every coordinator at /.well-known/jwks.json. A service
// uses a [Remote], which fetches and keeps that set; somebody who has the keys already uses a [KeyRing].
//
// A ticket has no end date on purpose. It says which token was granted; whether that token is still the newest is
// decided by the floor of the store that it is shown to.
package ticket

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Bounds of a ticket and of the names in it. MaxSize lets a ticket travel where little fits: a startup
// parameter, a header, an environment variable.
const (
	MaxSize    = 900 // bytes of a ticket
	MaxCluster = 64  // bytes of a cluster's name
)

// Claims is what a ticket says.
type Claims struct {
	Cluster     string // the cluster that granted; floors are kept per cluster
	Incarnation uint32 // of the cluster, the same as Token.Incarnation()
	Group       uint16 // the Raft group that granted
	Resource    lease.Resource
	Token       lease.Token
	Mode        lease.Mode
	Lease       lease.IDHash // tells holders of one shared token apart
	Client      string       // ClientHash of the holder
}

// ClientHash is what a ticket shows of its holder: 22 characters that tell two holders apart and name nobody.
func ClientHash(identity lease.Identity, client lease.ClientID) string {
	sum := sha256.Sum256([]byte(string(identity) + "\x00" + string(client)))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Validate reports the first claim that no coordinator would sign, and nil if there is none.
func (c Claims) Validate() error {
	switch {
	case !validCluster(c.Cluster):
		return fmt.Errorf("cluster is not 1 to %d letters, digits and ._-", MaxCluster)
	case c.Token == 0 || c.Token > lease.MaxToken:
		return errors.New("token is out of range")
	case c.Token.Incarnation() != c.Incarnation:
		return errors.New("token is of another incarnation")
	case c.Mode != lease.Exclusive && c.Mode != lease.Shared:
		return errors.New("mode is unknown")
	case c.Lease.IsZero():
		return errors.New("lease hash is missing")
	case len(c.Client) != base64.RawURLEncoding.EncodedLen(16):
		return errors.New("client hash is missing")
	}
	_, err := lease.ParseResource(string(c.Resource))
	return err
}

func validCluster(s string) bool {
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= MaxCluster
}
