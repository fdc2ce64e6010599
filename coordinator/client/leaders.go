package client

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

const (
	// avoidFor is how long a leader that failed is not asked directly. Others forward to it, and tell of the next one.
	avoidFor = 2 * time.Second
	// plainFor is how long a node is known to have no sessions. It may be upgraded.
	plainFor = time.Minute
	// maxConnections bounds the leaders that a client connects to, beside the addresses of its configuration.
	maxConnections = 32
)

// session returns the session for a call, opened if need be: with the leader of its group, once that has answered, and
// until then with the address in use, which forwards. nil: the call is to be made by itself.
func (n *nodes) session(to target) (*session, string) {
	if n.cfg.Unary {
		return nil, ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if leader := n.leader(to); leader != "" && n.past(n.avoid, leader) && n.past(n.plain, leader) {
		if s := n.open(leader); s != nil && (s.isHeard() || leader == n.addrs[n.use]) {
			return s, leader
		}
	}
	addr := n.addrs[n.use]
	if !n.past(n.plain, addr) {
		return nil, ""
	}
	return n.open(addr), addr
}

// past reports whether the time is over, if there is any, until which something holds of an address. The caller holds mu.
func (n *nodes) past(times map[string]time.Duration, addr string) bool {
	until, ok := times[addr]
	if ok && n.cfg.Clock.Now() >= until {
		delete(times, addr)
		ok = false
	}
	return !ok
}

// leader is the address of who leads the group of a call; empty if that is not known. The caller holds mu.
func (n *nodes) leader(to target) string { return n.leads(to.in(uint16(len(n.leaders)))) }

// leads is the address of who leads a group; empty if that is not known. The caller holds mu.
func (n *nodes) leads(group uint16) string {
	if int(group) < len(n.leaders) {
		return n.leaders[group]
	}
	return ""
}

// open returns the session with an address; nil if there can be none. The caller holds mu.
func (n *nodes) open(addr string) *session {
	if s := n.sessions[addr]; s != nil {
		return s
	}
	if n.closed || n.conns[addr] == nil && len(n.conns) >= len(n.addrs)+maxConnections {
		return nil
	}
	conn, err := n.connect(addr)
	if err != nil {
		n.avoid[addr] = n.cfg.Clock.Now() + avoidFor
		return nil
	}
	s := newSession(n.closing, addr, n)
	n.sessions[addr] = s
	n.work.Go(func() { s.run(conn) })
	return s
}

// learn implements sessionOwner.
func (n *nodes) learn(leaders []*lockpb.Leader) {
	addrs := make([]string, 0, len(leaders))
	for _, l := range leaders {
		if l.GetGroup() > lease.MaxGroups {
			return // not of this API
		}
		for int(l.GetGroup()) >= len(addrs) {
			addrs = append(addrs, "")
		}
		addrs[l.GetGroup()] = l.GetGrpc()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaders = addrs
	for _, times := range []map[string]time.Duration{n.avoid, n.plain} {
		for addr := range times {
			n.past(times, addr) // what is over is forgotten, whether that address is asked again or not
		}
	}
	for addr, conn := range n.conns { // of former leaders
		if n.sessions[addr] == nil && !slices.Contains(n.addrs, addr) && !slices.Contains(addrs, addr) {
			_ = conn.Close()
			delete(n.conns, addr)
		}
	}
}

// ended implements sessionOwner.
func (n *nodes) ended(s *session, heard bool, cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sessions[s.addr] == s {
		delete(n.sessions, s.addr)
	}
	now := n.cfg.Clock.Now()
	switch {
	case status.Code(cause) == codes.Unimplemented:
		n.plain[s.addr] = now + plainFor
	case !heard:
		n.avoid[s.addr] = now + avoidFor
	}
}

// groups is the number of the cluster's groups; 0 if nobody has told yet.
func (n *nodes) groups() uint16 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return uint16(len(n.leaders))
}

// number sets the number of groups where only that is known.
func (n *nodes) number(groups int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.leaders) == 0 && groups <= lease.MaxGroups {
		n.leaders = make([]string, groups)
	}
}

// leaderOf tells where calls for a group go; what is empty goes anywhere.
func (n *nodes) leaderOf(group uint16) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leads(group)
}
