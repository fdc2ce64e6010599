package coordinator

import (
	"errors"

	"github.com/lychgate/lychgate/coordinator/internal/access"
)

// Reload takes the access rules of another configuration and reads the file of tokens anew: both, or with an error neither.
// They count for each call from then on, also in streams that are open, and a stream whose caller has lost its token or its right
// is ended. Nothing else of the configuration is taken: it counts from the next start.
func (n *Node) Reload(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return n.reload(c.Access)
}

// Reload is that of Node.
func (g *Gateway) Reload(c GatewayConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return g.node.reload(c.Access)
}

func (n *Node) reload(to *Access) error {
	s, from := n.security.Load(), n.config.Access
	switch {
	case s == nil:
		return errors.New("access: nothing is open yet")
	case (from == nil) != (to == nil):
		return errors.New("access: to begin or end to ask for rights takes a restart")
	case from == nil:
		n.deps.Logger.Info("no access rules to take anew: nobody is asked for rights")
		return nil
	case from.Tokens != to.Tokens:
		return errors.New("access.tokens: another file takes a restart")
	}
	rules, err := access.New(to.rules())
	if err != nil {
		return err
	}
	if s.Tokens != nil {
		take, err := s.Tokens.Reload()
		if err != nil {
			return err
		}
		take()
	}
	s.Rules.Take(rules)
	n.deps.Logger.Info("access rules taken anew", "rules", len(to.Rules))
	return nil
}
