package proxy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/proxy/admin"
)

// ProxyProtocol says which peers begin their connections with a header of the PROXY protocol, version 1 or 2, which names the
// client they speak for.
type ProxyProtocol struct {
	From []string `koanf:"from"` // addresses and networks of load balancers; empty: nobody's header is taken
}

func (p ProxyProtocol) validate(v *validation, field string) {
	for i, text := range p.From {
		_, err := parseNetwork(text)
		v.check(err == nil, fmt.Sprintf("%s.from[%d]", field, i), fmt.Sprintf("is %q, not an address or a network such as 10.0.0.0/24", text))
	}
}

// warning says what is probably not meant; empty: nothing.
func (p ProxyProtocol) warning() string {
	for _, text := range p.From {
		if network, err := parseNetwork(text); err == nil && network.Bits() == 0 {
			return "has " + text + ": whoever can connect can call itself by any address in logs and tables"
		}
	}
	return ""
}

// load makes what the adapter is told of a listener. Validate has found nothing wrong.
func (p ProxyProtocol) load(listener string, metrics *admin.Metrics) postgres.ProxyProtocol {
	for _, fault := range postgres.HeaderFaults() {
		metrics.AnnounceHeaderFault(listener, fault)
	}
	out := postgres.ProxyProtocol{Refused: func(fault string) { metrics.HeaderRefused(listener, fault) }}
	for _, text := range p.From {
		if network, err := parseNetwork(text); err == nil {
			out.From = append(out.From, network)
		}
	}
	return out
}

// parseNetwork reads a network, or one address.
func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		network, err := netip.ParsePrefix(text)
		return network.Masked(), err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}
