package peertls

import (
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
