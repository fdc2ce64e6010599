package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// TicketConfig is a local listener that shows a ticket for clients that know nothing of tickets.
type TicketConfig struct {
	Proxies []string      // PostgreSQL listeners of proxies, each host:port or /folder/of/the/socket:port
	Ticket  func() string // the ticket as it is now, asked once a connection; empty: the lease is gone
	TLS     *tls.Config   // towards the proxy; nil: plaintext

	MaxConnections int          // local clients: 1,000
	Logger         *slog.Logger // nil: none
}

const (
	// localStartup bounds a local client's start-up message.
	localStartup = 30 * time.Second
	// proxyConnect bounds the connect to one proxy, so that there is time for another.
	proxyConnect = 5 * time.Second
)

// doorway is a listener at work: its configuration, and the proxy that was reached last. All connections go there
// until it cannot be reached, which keeps a request to cancel with the session that it is for.
type doorway struct {
	TicketConfig
	use atomic.Int64 // index into Proxies
}

// ServeTicket relays every connection of l to a proxy with fence.ticket added to its start-up message, until ctx
// is done: then it closes l and every connection, and returns when all have ended. l belongs on a loopback address:
// whoever can connect to it uses the ticket. Clients speak plaintext to it. With several proxies a connection goes to
// the next one when one cannot be reached; connections that are open do not move. Those over the limit are closed at
// once. Errors of accepting that pass are waited for; a stop by ctx is no error.
func ServeTicket(ctx context.Context, l net.Listener, config TicketConfig) error {
	if config.Ticket == nil {
		return errors.New("postgres: ticket listener without a ticket")
	}
	if len(config.Proxies) == 0 {
		return errors.New("postgres: ticket listener without a proxy")
	}
	for _, addr := range config.Proxies {
		if _, _, err := ParseUpstream(addr); err != nil {
			return fmt.Errorf("postgres: ticket listener: proxy: %w", err)
		}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&config.MaxConnections, 1000)
	door := &doorway{TicketConfig: config}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	var relays sync.WaitGroup
	defer relays.Wait()
	places := make(chan struct{}, config.MaxConnections)
	return acceptEach(ctx, l, config.Logger, func(conn net.Conn) {
		if !take(places) {
			conn.Close()
			return
		}
		relays.Go(func() {
			defer func() { <-places }()
			door.relay(ctx, conn)
		})
	})
}

// relay serves one local client.
func (c *doorway) relay(ctx context.Context, client net.Conn) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	_ = client.SetDeadline(time.Now().Add(localStartup)) // a dead connection fails on read
	proxy, err := c.introduce(ctx, client)
	if err != nil {
		c.Logger.Debug("local connection", "cause", err.Error())
		if message := farewell(err); message != nil {
			if _, err := client.Write(message); err == nil {
				linger(client, time.Second)
			}
		}
		return
	}
	defer proxy.Close()
	defer context.AfterFunc(ctx, func() { proxy.Close() })()
	_ = client.SetDeadline(time.Time{})
	pipe(client, proxy)
}

// introduce reads the client's start-up message and hands it, with the ticket, to the proxy.
func (c *doorway) introduce(ctx context.Context, client net.Conn) (net.Conn, error) {
	code, body, err := readUnencrypted(client)
	if err != nil {
		return nil, err
	}
	packet := wire.Request(code, body)
	if code != wire.CancelCode {
		startup, err := wire.ParseStartup(code, body)
		if err != nil {
			return nil, err
		}
		ticket := c.Ticket()
		if ticket == "" {
			return nil, &gate.Refusal{Reason: gate.LeaseEnded, Detail: "The lease that this address was opened for is gone."}
		}
		shown := append([]string{ticket}, startup.Take(paramTicket)...)
		startup.Set(paramTicket, strings.Join(shown, ","))
		packet = startup.Packet()
	}
	proxy, err := c.dial(ctx)
	if err != nil {
		f := fail(codeCannotConnect, "the proxy cannot be reached")
		f.err = err
		return nil, f
	}
	if _, err := proxy.Write(packet); err != nil {
		proxy.Close()
		return nil, err
	}
	return proxy, nil
}

// readUnencrypted declines every encryption, once each.
func readUnencrypted(client net.Conn) (code uint32, body []byte, err error) {
	for range 3 {
		code, body, err = wire.ReadStartup(client)
		if err != nil || code != wire.SSLCode && code != wire.GSSCode {
			return code, body, err
		}
		if _, err := client.Write([]byte{'N'}); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, &wire.FrameError{Reason: "repeated request for encryption"}
}

// dial connects to the proxy in use, or to the next one that can be reached.
func (c *doorway) dial(ctx context.Context) (net.Conn, error) {
	first := c.use.Load()
	var errs []error
	for i := range c.Proxies {
		n := (int(first) + i) % len(c.Proxies)
		conn, err := c.dialOne(ctx, c.Proxies[n])
		if err == nil {
			c.use.CompareAndSwap(first, int64(n)) // unless another connection has moved on meanwhile
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// dialOne connects to a proxy, with TLS where it is asked for: a proxy without it is then an error.
func (c TicketConfig) dialOne(ctx context.Context, proxy string) (net.Conn, error) {
	network, address, err := ParseUpstream(proxy)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: proxyConnect, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	secure, err := secured(ctx, conn, c.TLS)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

func secured(ctx context.Context, conn net.Conn, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, localStartup)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // a dead connection fails on read
	if _, err := conn.Write(wire.Request(wire.SSLCode, nil)); err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	if answer[0] != 'S' {
		return nil, errors.New("the proxy speaks no TLS")
	}
	secure := tls.Client(conn, config)
	return secure, secure.HandshakeContext(ctx)
}

// pipe copies both directions until both have ended. Each end of stream is passed on, so that a last message is
// read before the connection goes.
func pipe(a, b net.Conn) {
	var both sync.WaitGroup
	one := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // whatever breaks, the other side is told in the same way
		_ = closeWrite(to)
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
}
