package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/sparse"
)

// PeerDialer opens a connection to a member at its address (host:port), whichever way nodes speak to one another. It
// ends with ctx. One that authenticates must have verified that the other side is that member before it returns.
type PeerDialer func(ctx context.Context, member, address string) (net.Conn, error)

// VerifiedPeer is a connection that knows which node it comes from: what the listener of an authenticating port gives
// out. PeerNode is asked once, after the first bytes have been read under a deadline, so the listener's Accept need
// not wait for a handshake: it may happen in the first Read. Empty: nobody was verified, and the connection is refused.
// Connections without this method say themselves who they are, which is plain TCP.
type VerifiedPeer interface{ PeerNode() string }

// PortConfig is what a Port is made from.
type PortConfig struct {
	Node    string
	Members []Member
	Address string // listened on

	// Listener is listened on instead of Address. Dial is used instead of plain TCP. They belong together: with TLS, the
	// listener's connections are VerifiedPeers.
	Listener net.Listener
	Dial     PeerDialer
	// Secure makes of the listener on Address one whose connections are VerifiedPeers. May be nil.
	Secure func(net.Listener) net.Listener

	// Cluster is the cluster's name, empty as long as it is not known. Nodes of two clusters do not speak to each
	// other. May be nil.
	Cluster func() string
	Logger  *slog.Logger
}

// Port is the one peer port of a node, for all of its groups: each connection says at its beginning which group it is of.
// Listen before a group runs on it; Close after the last one.
type Port struct {
	config   PortConfig
	listener net.Listener
	serving  sync.WaitGroup
	limit    chan struct{} // a place for each connection that has not said hello yet
	refused  *sparse.Log   // who was not let in: strangers must not fill the disk
	faults   *sparse.Log

	mu      sync.Mutex
	members map[string]string // id to address
	layers  map[uint16]*layer
	open    map[net.Conn]struct{} // those that no layer has
	closed  bool
}

const (
	maxGreeting = 64 // connections that have not said hello; one more is closed at once
	maxOfPeer   = 16 // connections of one node in one group; one more ends the oldest, whose node has probably forgotten it
)

// NewPort does no I/O.
func NewPort(config PortConfig) *Port {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Cluster == nil {
		config.Cluster = func() string { return "" }
	}
	if config.Dial == nil {
		config.Dial = dialPlain
	}
	p := &Port{
		config: config, limit: make(chan struct{}, maxGreeting),
		refused: sparse.New(config.Logger, 1, repeatAfter), faults: sparse.New(config.Logger, 1, repeatAfter),
		members: make(map[string]string), layers: make(map[uint16]*layer), open: make(map[net.Conn]struct{}),
	}
	for _, m := range config.Members {
		p.members[m.ID] = m.Peer
	}
	return p
}

func dialPlain(ctx context.Context, _, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Listen opens the port and begins to accept. Until a group is open on it, connections of that group are refused.
func (p *Port) Listen() error {
	p.listener = p.config.Listener
	if p.listener == nil {
		l, err := net.Listen("tcp", p.config.Address)
		if err != nil {
			return fmt.Errorf("open the peer port: %w", err)
		}
		if p.config.Secure != nil {
			l = p.config.Secure(l)
		}
		p.listener = l
	}
	p.config.Logger.Info("listening for peers", "address", p.listener.Addr().String(), "advertised", p.address(p.config.Node))
	p.serving.Go(p.accept)
	return nil
}

// Addr is where the port listens. Valid after Listen.
func (p *Port) Addr() net.Addr { return p.listener.Addr() }

// Know sets a member's address, of one that has joined or moved; the next connection uses it.
func (p *Port) Know(m Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[m.ID] = m.Peer
}

// Forget takes a member out. Connections that are open stay: the library ends them.
func (p *Port) Forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members, id)
}

// Knows reports whether somebody is a member.
func (p *Port) Knows(id string) bool { return p.address(id) != "" }

func (p *Port) address(member string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[member]
}

// Close ends the port, what is open on it, and waits for what it started.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.serving.Wait()
		return nil
	}
	p.closed = true
	for conn := range p.open {
		_ = conn.Close() // it has not said hello: nobody misses it
	}
	layers := make([]*layer, 0, len(p.layers))
	for _, l := range p.layers {
		layers = append(layers, l)
	}
	p.mu.Unlock()
	var errs []error
	if p.listener != nil {
		errs = append(errs, p.listener.Close()) // not under the mutex: it waits for handshakes, which ask Knows
	}
	for _, l := range layers {
		errs = append(errs, l.Close())
	}
	p.serving.Wait()
	return errors.Join(errs...)
}

// accept runs until the listener is closed.
func (p *Port) accept() {
	for pause := time.Duration(0); ; {
		conn, err := p.listener.Accept()
		switch {
		case err == nil:
			pause = 0
		case errors.Is(err, net.ErrClosed) || p.isClosed():
			return
		default: // no file descriptors, for example
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			p.faults.Warn("accepting peers", "error", err)
			time.Sleep(pause)
			continue
		}
		select {
		case p.limit <- struct{}{}:
			p.serving.Go(func() {
				defer func() { <-p.limit }()
				p.greet(conn)
			})
		default:
			p.refused.Warn("peer refused", "remote", conn.RemoteAddr().String(), "reason", "too many connections have not said who they are")
			_ = conn.Close() // it learns no more than that
		}
	}
}

func (p *Port) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// greet reads who is there, and gives the connection to its group or closes it.
func (p *Port) greet(conn net.Conn) {
	if !p.hold(conn) {
		return
	}
	defer p.release(conn)
	_ = conn.SetDeadline(time.Now().Add(helloTimeout)) // one that cannot be set shows in the read
	h, err := readHello(conn)
	if err != nil {
		_ = conn.Close()
		if !p.isClosed() && !errors.Is(err, io.EOF) {
			p.refused.Warn("peer refused", "remote", conn.RemoteAddr().String(), "error", err)
		}
		return
	}
	layer, said := p.judge(conn, h)
	answer := hello{group: h.group, node: p.config.Node, cluster: p.config.Cluster()}
	if layer != nil {
		if answer.life = layer.history.life(); !answer.life.fits(h.life) {
			said = refusedLife
		}
	}
	answer.verdict = said
	if err := writeHello(conn, answer); err != nil || said != accepted {
		_ = conn.Close()
		if said != accepted && said != refusedGroup { // a group that is not open yet is every start
			p.refused.Warn("peer refused", "remote", conn.RemoteAddr().String(), "node", h.node, "group", h.group, "cluster", h.cluster,
				"life", h.life.String(), "own_life", answer.life.String(), "reason", said.String())
		}
		return
	}
	_ = conn.SetDeadline(time.Time{})
	layer.deliver(conn, h.node)
}

// judge says whether a connection is let in, and to which group.
func (p *Port) judge(conn net.Conn, h hello) (*layer, verdict) {
	if h.verdict != accepted {
		return nil, h.verdict
	}
	if own := p.config.Cluster(); own != "" && h.cluster != "" && own != h.cluster {
		return nil, refusedCluster
	}
	if h.node == "" || h.node == p.config.Node {
		return nil, refusedNode
	}
	if v, ok := conn.(VerifiedPeer); ok && v.PeerNode() != h.node {
		return nil, refusedNode
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.layers[h.group]
	if l == nil {
		return nil, refusedGroup
	}
	return l, accepted
}

// hold makes Close end a connection that belongs to no group yet.
func (p *Port) hold(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.open[conn] = struct{}{}
	return true
}

func (p *Port) release(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// dial connects to a member for a group.
func (p *Port) dial(ctx context.Context, member string, number uint16, of history) (net.Conn, error) {
	address := p.address(member)
	if address == "" {
		return nil, fmt.Errorf("no member has the id %q", member)
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := p.config.Dial(ctx, member, address)
	if err != nil {
		return nil, err
	}
	if err := p.introduce(ctx, conn, member, number, of); err != nil {
		return nil, errors.Join(fmt.Errorf("node %q at %s: %w", member, address, err), conn.Close())
	}
	return conn, nil
}

// introduce says hello and reads the answer.
func (p *Port) introduce(ctx context.Context, conn net.Conn, member string, number uint16, of history) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // one that cannot be set shows in the read
	}
	own := of.life()
	if err := writeHello(conn, hello{group: number, node: p.config.Node, cluster: p.config.Cluster(), life: own}); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	answer, err := readHello(conn)
	switch {
	case err != nil:
		return err
	case answer.verdict == refusedLife && answer.node == member:
		of.outlived(answer.life, member)
		return fmt.Errorf("it refused the connection: it is of the cluster's life %s, and this node of life %s", answer.life, own)
	case answer.verdict != accepted:
		return fmt.Errorf("it refused the connection: %s", answer.verdict)
	case answer.node != member:
		p.faults.Warn("the address of a member is another node's", "member", member, "node", answer.node)
		return fmt.Errorf("it is node %q", answer.node)
	}
	return conn.SetDeadline(time.Time{})
}
