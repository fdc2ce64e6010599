package group

import (
	"errors"
	"fmt"
	"io"
	"net"
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

// streams carries the library's messages over TCP. It knows every open connection, because the library's
// transport leaves them open when it is closed, and its calls in progress would wait for their timeout.
type streams struct {
	net.Listener
	advertised peerAddr

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// Addr is the address that the others know this node by.
func (s *streams) Addr() net.Addr { return s.advertised }

// Dial implements raft.StreamLayer.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.keep(net.DialTimeout("tcp", string(address), timeout))
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	return s.keep(s.Listener.Accept())
}

// keep remembers a new connection until it is closed.
func (s *streams) keep(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	s.open[conn] = struct{}{}
	return &kept{Conn: conn, streams: s}, nil
}

// Close stops listening and ends all connections.
func (s *streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	errs := []error{s.Listener.Close()}
	for conn := range s.open {
		errs = append(errs, conn.Close())
	}
	clear(s.open)
	return errors.Join(errs...)
}

type kept struct {
	net.Conn
	streams *streams
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
	k.streams.mu.Lock()
	defer k.streams.mu.Unlock()
	if _, ok := k.streams.open[k.Conn]; !ok {
		return nil // ended by streams.Close, or closed twice
	}
	delete(k.streams.open, k.Conn)
	return k.Conn.Close()
}

// directory finds a member's address in the configuration of this start rather than in the log, so that a
// member may move.
type directory map[raft.ServerID]raft.ServerAddress

// ServerAddr implements raft.ServerAddressProvider.
func (d directory) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	address, ok := d[id]
	if !ok {
		return "", fmt.Errorf("no member has the id %q", id)
	}
	return address, nil
}

// listen opens the peer port and makes the transport on it.
func listen(address, advertised string, members []Member, timeout time.Duration, logger hclog.Logger) (*raft.NetworkTransport, net.Addr, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("open the peer port: %w", err)
	}
	known := make(directory)
	for _, m := range members {
		known[raft.ServerID(m.ID)] = raft.ServerAddress(m.Peer)
	}
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: known,
		Logger:                logger,
		Stream:                &streams{Listener: listener, advertised: peerAddr(advertised), open: make(map[net.Conn]struct{})},
		MaxPool:               pooledConns,
		MaxRPCsInFlight:       rpcInFlight,
		Timeout:               timeout,
	})
	return transport, listener.Addr(), nil
}
