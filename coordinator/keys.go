package coordinator

import (
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// ticketKeys is a node's private ticket key: in its folder, and as its groups register it. It is an api.KeyHolder.
type ticketKeys struct {
	node   string
	dir    string
	groups []*group.Group
}

// Prepare implements api.KeyHolder.
func (k *ticketKeys) Prepare() (*ticket.Signer, error) {
	key, err := ticket.PrepareKey(k.dir)
	if err != nil {
		return nil, err
	}
	return ticket.NewSigner(key)
}

// Adopt implements api.KeyHolder.
func (k *ticketKeys) Adopt(next *ticket.Signer) error {
	if err := ticket.ReplaceKey(k.dir); err != nil {
		return err
	}
	for _, g := range k.groups {
		g.SetKey(publicKey(k.node, next))
	}
	return nil
}

// publicKey is the half of a node's key that the cluster knows.
func publicKey(node string, signer *ticket.Signer) lock.PutKey {
	return lock.PutKey{Node: node, KeyID: signer.Key().ID, Public: signer.Key().Public}
}
