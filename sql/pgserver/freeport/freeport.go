// Package freeport finds ports on the loopback for servers that are started for a while: by tests, the demo, "lychgate
// dev" and the throw-away PostgreSQL.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const host = "127.0.0.1"

// Where ports are looked for: below those that systems give to outgoing connections (from 32768 on Linux, 49152
// elsewhere). Between finding a port and using it, such a connection could take it.
const (
	low   = 20000
	high  = 32000
	tries = 200
)

// Listen listens on a free port of 127.0.0.1. While it is held, nobody else gets that port.
func Listen() (net.Listener, error) {
	var err error
	for range tries {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(low+rand.IntN(high-low)))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

// Addresses finds n different addresses (127.0.0.1:port) that nobody listened on a moment ago. Another server may take
// one before it is used; then the one that wanted it has to say so.
func Addresses(n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		l, err := Listen()
		if err != nil {
			return nil, err
		}
		defer l.Close() // held until all are found, so that they differ
		addresses[i] = l.Addr().String()
	}
	return addresses, nil
}

// Port finds one, as Addresses does.
func Port() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
