package dev

import (
	"fmt"
	"net"
	"strconv"

	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

const host = "127.0.0.1"

// DefaultBase is the first port of the documented ones: 7600 and up.
const DefaultBase = 7600

// Ports says where dev listens. A field of 0 takes its place after Base; with Base 0 too it takes a free one.
// The two nodes that have no field lie at Base + 3 to 5 and 7 to 9.
type Ports struct {
	Base  int // --port-base; 0: free ones
	GRPC  int // --grpc-port, of the first node; default Base
	HTTP  int // --http-port, of the first node; default Base + 1
	Admin int // --admin-port, of the proxy; default Base + 10
	Proxy int // --proxy-port, for PostgreSQL clients; default Base + 32
}

// addresses are all that dev listens on, beside its PostgreSQL.
type addresses struct {
	nodes [nodeCount]nodeAddresses
	admin string
	proxy string
}

type nodeAddresses struct{ grpc, http, peer string }

const nodeCount = 3

// want is one port that somebody has to get.
type want struct {
	to     *string
	port   int // asked for by flag; 0: offset after the base
	offset int
	flag   string // that moves it
}

// resolve finds an address for everything and makes sure that each is free now, so that what is taken is
// reported by the flag that moves it and not by whatever breaks first.
func (p Ports) resolve() (addresses, error) {
	var a addresses
	wants := []want{
		{&a.nodes[0].grpc, p.GRPC, 0, "--grpc-port"},
		{&a.nodes[0].http, p.HTTP, 1, "--http-port"},
		{&a.nodes[0].peer, 0, 2, "--port-base"},
		{&a.admin, p.Admin, 10, "--admin-port"},
		{&a.proxy, p.Proxy, 32, "--proxy-port"},
	}
	for i, offset := range []int{3, 7} {
		n := &a.nodes[i+1]
		wants = append(wants, want{&n.grpc, 0, offset, "--port-base"}, want{&n.http, 0, offset + 1, "--port-base"}, want{&n.peer, 0, offset + 2, "--port-base"})
	}
	var held []net.Listener // until all are found, so that no two get the same
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for _, w := range wants {
		l, err := w.listen(p.Base)
		if err != nil {
			return addresses{}, err
		}
		held = append(held, l)
		*w.to = l.Addr().String()
	}
	return a, nil
}

func (w want) listen(base int) (net.Listener, error) {
	port := w.port
	if port == 0 && base != 0 {
		port = base + w.offset
	}
	if port == 0 {
		return freeport.Listen()
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("port %d cannot be had: choose another with %s: %w", port, w.flag, err)
	}
	return l, nil
}
