package peertls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Bounds of handshakes on the peer port.
const (
	maxHandshakes   = 256 // at once
	maxOfOneAddress = 32  // of them from one address
)

// Listen makes of a listener one whose connections are of members of the cluster: TLS is done when Accept returns them,
// so somebody who dawdles over it keeps nobody waiting. One handshake too many is closed at once; the nodes' transport
// dials again.
func (k *Keys) Listen(inner net.Listener, member func(node string) bool) net.Listener {
	l := &listener{
		Listener: inner, keys: k, config: k.PeerConfig(member),
		ready: make(chan net.Conn), failed: make(chan error, 1), greeting: make(map[string]int),
	}
	l.closing, l.close = context.WithCancel(context.Background())
	l.work.Go(l.accept)
	return l
}

type listener struct {
	net.Listener
	keys    *Keys
	config  *tls.Config
	ready   chan net.Conn
	failed  chan error // why no more come
	closing context.Context
	close   context.CancelFunc
	work    sync.WaitGroup

	mu       sync.Mutex
	greeting map[string]int // handshakes in progress by host; the empty host counts all
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.ready:
		return conn, nil
	case err := <-l.failed:
		l.failed <- err
		return nil, err
	case <-l.closing.Done():
		return nil, net.ErrClosed
	}
}

func (l *listener) accept() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if isTemporary(err) && l.pause() {
				continue
			}
			l.failed <- err
			return
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			host = conn.RemoteAddr().String()
		}
		if !l.enter(host) {
			l.keys.refuse("peer", "flood", "too many handshakes at once", "port", "peer", "from", host)
			_ = conn.Close()
			continue
		}
		l.work.Go(func() {
			defer l.leave(host)
			l.greet(conn)
		})
	}
}

func (l *listener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greeting[""] >= maxHandshakes || l.greeting[host] >= maxOfOneAddress {
		return false
	}
	l.greeting[""]++
	l.greeting[host]++
	return true
}

func (l *listener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.greeting[""]--
	if l.greeting[host]--; l.greeting[host] == 0 {
		delete(l.greeting, host)
	}
}

// isTemporary reports whether the next connection may well come: files are short, or the caller was gone.
func isTemporary(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Temporary() //nolint:staticcheck // net/http does the same: Accept has no other sign
}

func (l *listener) pause() bool {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closing.Done():
		return false
	}
}

// greet does the handshake, and hands the connection to Accept.
func (l *listener) greet(raw net.Conn) {
	ctx, cancel := context.WithTimeout(l.closing, l.keys.config.Handshake)
	defer cancel()
	conn := tls.Server(raw, l.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if l.closing.Err() == nil {
			l.keys.failed("peer", raw.RemoteAddr(), err)
		}
		return
	}
	select {
	case l.ready <- &Conn{conn}:
	case <-l.closing.Done():
		_ = raw.Close()
	}
}

// Close stops listening. Connections that Accept has returned stay.
func (l *listener) Close() error {
	l.close()
	err := l.Listener.Close()
	l.work.Wait()
	return err
}

// Conn is a connection of the peer port, either end.
type Conn struct{ *tls.Conn }

// PeerNode is the id of the node at the other end, as its certificate says; the handshake has checked it.
func (c *Conn) PeerNode() string {
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return ""
	}
	name, err := nameOf(certs[0])
	if err != nil || name.Kind != Node {
		return ""
	}
	return name.ID
}

// DialPeer connects to the peer port of a node at an address, handshake included.
func (k *Keys) DialPeer(ctx context.Context, node, address string) (net.Conn, error) {
	dialer := tls.Dialer{Config: k.DialConfig(node)}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", node, address, err)
	}
	secured, ok := conn.(*tls.Conn)
	if !ok {
		_ = conn.Close()
		return nil, errNoCertificate
	}
	return &Conn{secured}, nil
}
