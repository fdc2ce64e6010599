package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// NoTicket asks for no ticket, for a holder that shows it to nobody: signing it costs the coordinator some 30 µs of CPU.
// Lease.Ticket is "" then, until FetchTicket.
func NoTicket() Option { return func(o *options) { o.noTicket = true } }

// FetchTicket is Ticket for a lease that was taken with NoTicket: the first call renews the lease and has a ticket
// signed, the others return it at once. It is repeated as Release is. It fails with the lease's error if that is over.
func (l *Lease) FetchTicket(ctx context.Context) (string, error) {
	if ticket, err := l.Ticket(), l.Err(); ticket != "" || err != nil {
		return ticket, err
	}
	call, err := l.c.enter(ctx)
	if err != nil {
		return "", err
	}
	defer l.c.leave(call)
	ctx = call
	b := within(ctx, l.c.cfg.Patience, gaveUp)
	defer b.cancel()
	ctx = b
	err = repeat(ctx, func(ctx context.Context) error { return l.fetchTicket(ctx) })
	switch {
	case gone(err):
		l.lose(err)
		return "", l.Err()
	case err != nil:
		return "", err
	}
	return l.Ticket(), l.Err()
}

// fetchTicket makes one attempt.
func (l *Lease) fetchTicket(ctx context.Context) error {
	attempt := within(ctx, l.c.cfg.AttemptTimeout, noAnswer)
	defer attempt.cancel()
	sent := l.c.clock.Now()
	resp, err := l.c.locks.Heartbeat(attempt, &lockpb.HeartbeatRequest{LeaseIds: []string{l.id.String()}, Tickets: true})
	var r renewal
	if e, ok := errors.AsType[*Error](err); ok && e.Code == codes.Unimplemented {
		var renewed *lockpb.RenewResponse
		renewed, err = l.c.locks.Renew(attempt, &lockpb.RenewRequest{LeaseId: l.id.String()})
		r = renewalOf(renewed)
	} else if err == nil {
		r, err = resultOf(resp, 0, l)
	}
	if err == nil && r.ticket == "" {
		err = &Error{Op: "renew", Resource: string(l.resource), Reason: lockpb.Reason_INTERNAL, Applied: lockpb.Applied_YES, Message: "the coordinator signed no ticket"}
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == 0 {
		l.extend(r, sent)
		l.plan()
	}
	return nil
}

// signatory remembers which key the last ticket that it was asked about is of. All tickets of a key begin alike.
type signatory struct{ last atomic.Pointer[[2]string] }

// keyOf is the id of the key that signed a ticket (RFC 7515, the header's kid); empty if that cannot be told.
func (c *Client) keyOf(ticket string) string {
	header, _, ok := strings.Cut(ticket, ".")
	if !ok {
		return ""
	}
	if last := c.signatory.last.Load(); last != nil && last[0] == header {
		return last[1]
	}
	var said struct {
		KeyID string `json:"kid"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil || json.Unmarshal(raw, &said) != nil {
		return ""
	}
	c.signatory.last.Store(&[2]string{header, said.KeyID})
	return said.KeyID
}
