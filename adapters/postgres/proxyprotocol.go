package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/lychgate/lychgate/adapters/postgres/internal/proxyheader"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// ProxyProtocol is how a listener behind load balancers learns who its clients are: by the header of the PROXY protocol,
// version 1 or 2, with which a connection then begins, before any TLS.
// Source: haproxy.org, "The PROXY protocol, versions 1 and 2".
type ProxyProtocol struct {
	// From are the load balancers. Their connections have to begin with a header, which is believed. Everybody else is a client
	// with its own address, of whom a header is no start-up packet: it is refused.
	From []netip.Prefix
	// Refused is told of every connection that was closed for its header; nil: nobody is.
	Refused func(fault string)
}

// HeaderFaults are what Refused is told.
func HeaderFaults() []string {
	return []string{string(proxyheader.Missing), string(proxyheader.Malformed), string(proxyheader.Incomplete), string(proxyheader.Unexpected)}
}

// believes reports whether a peer's header says who the client is.
func (p ProxyProtocol) believes(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.From, func(from netip.Prefix) bool { return from.Contains(addr) })
}

// learnClient reads the header of a load balancer, and from then on calls the client by the address in it.
func (s *session) learnClient(ctx context.Context) error {
	config, peer := s.server.config.ProxyProtocol, s.client.RemoteAddr()
	if !config.believes(peer) {
		return nil
	}
	client, err := proxyheader.Read(s.client)
	switch {
	case errors.Is(err, io.EOF):
		return errNoSession // it looked whether somebody listens
	case err != nil:
		return s.headerRefused(ctx, err)
	case client != nil:
		s.address = client.String()
		s.log = s.server.log.With("client", s.address, "via", peer.String())
	}
	return nil
}

// headerRefused counts and logs what is wrong with a header; other errors it leaves alone.
func (s *session) headerRefused(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*proxyheader.Error](err)
	if !ok || ctx.Err() != nil { // it was interrupted
		return err
	}
	s.log.Warn("closed for its PROXY protocol header", "fault", string(refused.Fault), "cause", refused.Err.Error())
	if tell := s.server.config.ProxyProtocol.Refused; tell != nil {
		tell(string(refused.Fault))
	}
	return err
}

// unexpectedHeader makes an error of its own of a start-up packet that is a header.
func unexpectedHeader(err error) error {
	if !errors.Is(err, wire.ErrProxyHeader) {
		return err
	}
	return &proxyheader.Error{Fault: proxyheader.Unexpected, Err: errors.New("the peer is not in proxy_protocol.from, or has sent its header already")}
}
