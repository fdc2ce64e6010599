package peertls

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// AuthInfo is what a gRPC server knows of a connection's other end. Name is the zero value if it showed no certificate.
type AuthInfo struct {
	credentials.TLSInfo
	Name Name
}

// Dial is the credentials of gRPC connections to a node.
func (k *Keys) Dial(node string) credentials.TransportCredentials {
	return credentials.NewTLS(k.DialConfig(node))
}

// Serve is the credentials of a gRPC server. Its connections carry an AuthInfo.
func (k *Keys) Serve() credentials.TransportCredentials {
	return serving{TransportCredentials: credentials.NewTLS(k.ClientConfig("grpc")), keys: k}
}

type serving struct {
	credentials.TransportCredentials
	keys *Keys
}

// ServerHandshake implements credentials.TransportCredentials.
func (s serving) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		s.keys.failed("grpc", raw.RemoteAddr(), err)
		return nil, nil, err
	}
	secured, ok := info.(credentials.TLSInfo)
	if !ok {
		_ = conn.Close()
		return nil, nil, errNoCertificate
	}
	name, _, err := s.keys.Who(secured.State)
	if err != nil { // it was checked within the handshake, and the files have changed since
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, AuthInfo{TLSInfo: secured, Name: name}, nil
}

// Clone implements credentials.TransportCredentials.
func (s serving) Clone() credentials.TransportCredentials {
	return serving{s.TransportCredentials.Clone(), s.keys}
}

// NodeOf is the node that a connection of the peer port was made by, or was made to, as its certificate says.
func NodeOf(conn net.Conn) (string, bool) {
	for {
		switch c := conn.(type) {
		case *tls.Conn:
			certs := c.ConnectionState().PeerCertificates
			if len(certs) == 0 {
				return "", false
			}
			name, err := nameOf(certs[0])
			return name.ID, err == nil && name.Kind == Node
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return "", false
		}
	}
}

// DialNode connects to the peer port of a node, handshake included.
func (k *Keys) DialNode(ctx context.Context, address, node string) (net.Conn, error) {
	dialer := tls.Dialer{Config: k.DialConfig(node)}
	return dialer.DialContext(ctx, "tcp", address)
}
