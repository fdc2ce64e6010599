package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	pooledConns = 3
	rpcInFlight = 4 // append requests on their way to one follower; entries are large and few
)

// peerAddr is an address as it was configured, host name and all.
type peerAddr string

func (peerAddr) Network() string  { return "tcp" }
func (a peerAddr) String() string { return string(a) }

// layer carries one group's messages over the port that all groups share. It knows every open connection, because
// the library's transport leaves them open when it is closed, and its calls in progress would wait for their timeout.
type layer struct {
	port     *Port
	number   uint16
	history  history
	accepted chan net.Conn
	done     chan struct{} // closed with the layer

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	of     map[string][]*kept // the connections of each node that dialled, oldest first
	closed bool
}

// history is what a layer asks of its group. It does not block.
type history interface {
	life() life
	// outlived is told the life of a member that was dialled, if it is not the group's.
	outlived(by life, node string)
	// left is told that the last connection which a node had opened has ended.
	left(node string)
}

// layer opens a group on the port. It is an error if the group is open on it already.
func (p *Port) layer(number uint16, of history) (*layer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, net.ErrClosed
	case p.layers[number] != nil:
		return nil, fmt.Errorf("group %d is open on the peer port already", number)
	}
	l := &layer{
		port: p, number: number, history: of, accepted: make(chan net.Conn), done: make(chan struct{}),
		open: make(map[net.Conn]struct{}), of: make(map[string][]*kept),
	}
	p.layers[number] = l
	return l, nil
}

// Addr is the address that the others know this node by.
func (l *layer) Addr() net.Addr { return peerAddr(l.port.address(l.port.config.Node)) }

// Dial implements raft.StreamLayer. The address is a member's id: see directory.
func (l *layer) Dial(member raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := l.port.dial(ctx, string(member), l.number, l.history)
	if err != nil {
		return nil, err
	}
	return l.keep(conn, "")
}

// Accept implements net.Listener.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// deliver hands a connection that a node has opened to the library, or closes it if the group is closed first.
func (l *layer) deliver(conn net.Conn, node string) {
	k, err := l.keep(conn, node)
	if err != nil {
		return
	}
	select {
	case l.accepted <- k:
	case <-l.done:
	}
}

// keep remembers a new connection until it is closed; node is who dialled, empty for this node.
func (l *layer) keep(conn net.Conn, node string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	k := &kept{Conn: conn, layer: l, node: node}
	l.open[conn] = struct{}{}
	if node != "" {
		if of := l.of[node]; len(of) >= maxOfPeer {
			_ = l.drop(of[0]) // its end is the library's affair
		}
		l.of[node] = append(l.of[node], k)
	}
	return k, nil
}

// drop closes a connection, under the lock.
func (l *layer) drop(k *kept) error {
	if _, ok := l.open[k.Conn]; !ok {
		return nil // ended by Close, or closed twice
	}
	delete(l.open, k.Conn)
	if k.node != "" {
		rest := slices.DeleteFunc(l.of[k.node], func(other *kept) bool { return other == k })
		l.of[k.node] = rest
		if len(rest) == 0 {
			delete(l.of, k.node)
			l.history.left(k.node)
		}
	}
	return k.Conn.Close()
}

// Close ends all connections of the group; the port stays open for others.
func (l *layer) Close() error {
	l.port.mu.Lock()
	if l.port.layers[l.number] == l {
		delete(l.port.layers, l.number)
	}
	l.port.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	var errs []error
	for conn := range l.open {
		errs = append(errs, conn.Close())
	}
	clear(l.open)
	clear(l.of)
	return errors.Join(errs...)
}

type kept struct {
	net.Conn
	layer *layer
	node  string
}

// Read ends quietly once the transport is closed: the library logs every other end.
func (k *kept) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

func (k *kept) Close() error {
	k.layer.mu.Lock()
	defer k.layer.mu.Unlock()
	return k.layer.drop(k)
}

// directory has the library dial a member by its id: which address that is, is looked up at each connection, in the
// configuration of this start rather than in the log, so that a member may move.
type directory struct{}

// ServerAddr implements raft.ServerAddressProvider.
func (directory) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// tcp is the library's transport over a port.
type tcp struct {
	*raft.NetworkTransport
	port *Port
	own  bool // the port is the group's own, and closed with it
}

// EncodePeer implements raft.Transport. What a leader calls itself is an address, although ids are dialled.
func (t *tcp) EncodePeer(id raft.ServerID, address raft.ServerAddress) []byte {
	if known := t.port.address(string(id)); known != "" {
		return []byte(known)
	}
	return []byte(address)
}

// Close implements raft.WithClose.
func (t *tcp) Close() error {
	err := t.NetworkTransport.Close()
	if t.own {
		err = errors.Join(err, t.port.Close())
	}
	return err
}

// transport makes the group's transport on the port that it was given, or on one of its own.
func (g *Group) transport(logger hclog.Logger) (raft.Transport, error) {
	if g.config.Transport != nil {
		return g.config.Transport, nil
	}
	if g.config.Port != nil {
		g.port = g.config.Port
		return newTransport(g.config.Port, g.config, g, logger)
	}
	self, _ := g.config.member(g.config.Node)
	address := g.config.Listen
	if address == "" {
		address = self.Peer
	}
	port := NewPort(PortConfig{Node: g.config.Node, Members: g.config.Members, Address: address, Logger: g.config.Logger})
	if err := port.Listen(); err != nil {
		return nil, err
	}
	g.port = port
	transport, err := newTransport(port, g.config, g, logger)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	transport.own = true
	return transport, nil
}

func newTransport(port *Port, config Config, of history, logger hclog.Logger) (*tcp, error) {
	stream, err := port.layer(config.Group, of)
	if err != nil {
		return nil, err
	}
	return &tcp{port: port, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: directory{},
		Logger:                logger,
		Stream:                stream,
		MaxPool:               pooledConns,
		MaxRPCsInFlight:       rpcInFlight,
		Timeout:               config.Timing.RPC,
	})}, nil
}
