package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
)

// door is the loopback listener through which a command reaches the proxy under its lease.
type door struct {
	proxies  []string // host:port; the first that can be reached is used
	user     string   // "": from the environment
	database string   // "": from the environment
	lease    held

	listener net.Listener
	stop     context.CancelFunc
	served   sync.WaitGroup
}

// knockTimeout bounds the first showing of the ticket. A takeover may take a few seconds.
const knockTimeout = 15 * time.Second

// open opens the listener and shows the ticket through it once, so that earlier holders are fenced before the
// command starts. close must be called if it succeeds.
func (d *door) open(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("run: listener for the command: %w", err)
	}
	serving, stop := context.WithCancel(ctx)
	d.listener, d.stop = l, stop
	d.served.Go(func() {
		// It ends with its context; an earlier end shows as refused connections in the command.
		_ = postgres.ServeTicket(serving, l, postgres.TicketConfig{Proxies: d.proxies, Ticket: d.lease.Ticket})
	})
	if err := d.knock(ctx); err != nil {
		d.close()
		return err
	}
	return nil
}

// cut ends the listener and every connection through it.
func (d *door) cut() { d.stop() }

// close cuts and waits until nothing runs any more.
func (d *door) close() {
	d.stop()
	d.served.Wait()
}

// knock connects to the proxy once. The proxy raises the floor before it lets the client log in, so a login that
// fails has done what it was for, and is the command's to see.
func (d *door) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, d.url())
	if err == nil {
		return conn.Close(ctx)
	}
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return fmt.Errorf("run: proxy %s: %w", strings.Join(d.proxies, " or "), err)
	}
	if strings.HasPrefix(refusal.Code, classAuthorization) {
		return nil
	}
	err = fmt.Errorf("run: proxy %s: %s", strings.Join(d.proxies, " or "), refusal.Message)
	if code := "(" + refusal.Code + ")"; !strings.Contains(refusal.Message, code) { // ours say it themselves
		err = fmt.Errorf("%w %s", err, code)
	}
	for _, more := range []string{refusal.Detail, refusal.Hint, hintForCode(refusal.Code)} {
		if more != "" {
			err = fmt.Errorf("%w; %s", err, more)
		}
	}
	return err
}

// SQLSTATEs of PostgreSQL that knock knows.
const (
	classAuthorization = "28"
	codeNoDatabase     = "3D000"
	codeCannotConnect  = "57P03"
)

func hintForCode(code string) string {
	switch code {
	case codeNoDatabase:
		return "set --database"
	case codeCannotConnect:
		return "set --proxy or LYCHGATE_PROXY, or --proxy none for a command that needs no database"
	}
	return ""
}

// url is the database behind the listener.
func (d *door) url() string {
	name := firstOf(d.user, os.Getenv("PGUSER"), systemUser())
	u := url.URL{
		Scheme: "postgres", User: url.User(name), Host: d.listener.Addr().String(),
		Path:     "/" + firstOf(d.database, os.Getenv("PGDATABASE"), name),
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// environment adds to env what leads the command to the listener, and removes what would lead it past.
func (d *door) environment(env []string) []string {
	host, port, _ := net.SplitHostPort(d.listener.Addr().String())
	set := []string{
		"PGHOST=" + host, "PGPORT=" + port, "PGSSLMODE=disable", "PGGSSENCMODE=disable",
		"DATABASE_URL=" + d.url(),
	}
	if d.user != "" {
		set = append(set, "PGUSER="+d.user)
	}
	if d.database != "" {
		set = append(set, "PGDATABASE="+d.database)
	}
	return override(env, set, "PGHOSTADDR", "PGSERVICE", "PGREQUIRESSL")
}

// environment adds to env what tells the command of its lock.
func environment(env []string, l held) []string {
	return override(env, []string{
		"FENCE_TICKET=" + l.Ticket(), "FENCE_TOKEN=" + l.Token().String(), "FENCE_RESOURCE=" + string(l.Resource()),
	})
}

// override returns env without the variables that are set anew or removed, and the new ones at its end.
func override(env, set []string, removed ...string) []string {
	for _, v := range set {
		name, _, _ := strings.Cut(v, "=")
		removed = append(removed, name)
	}
	kept := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(removed, name)
	})
	return append(kept, set...)
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

func systemUser() string {
	u, err := user.Current()
	if err != nil {
		return os.Getenv("USER")
	}
	return u.Username
}
