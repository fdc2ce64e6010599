package api

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Bounds of a page of List.
const (
	defaultPage = 100
	maxPage     = 1000
)

// badName turns what package lease says about a name into a refusal.
func badName(err error) *refusal {
	var name *lease.NameError
	if errors.As(err, &name) {
		return invalid(name.Field, name.Error())
	}
	return invalid("", err.Error())
}

// parseAcquire checks an acquire and makes the command of it, without what the leader adds: lease id and call.
func parseAcquire(identity lease.Identity, in *lockpb.AcquireRequest) (lock.Acquire, *refusal) {
	resource, err := lease.ParseResource(in.GetResource())
	if err != nil {
		return lock.Acquire{}, badName(err)
	}
	client, request, refused := parseRequest(in.GetClientId(), in.GetRequestId())
	if refused != nil {
		return lock.Acquire{}, refused
	}
	owner := in.GetOwner()
	if owner != "" {
		if _, err := lease.ParseClientID(owner); err != nil {
			return lock.Acquire{}, invalid("owner", "owner"+strings.TrimPrefix(err.Error(), "client_id"))
		}
	}
	mode, refused := parseMode(in.GetMode())
	if refused != nil {
		return lock.Acquire{}, refused
	}
	ttl, refused := parseTTL(in.Ttl)
	if refused != nil {
		return lock.Acquire{}, refused
	}
	if in.GetWaitTimeout() < 0 {
		return lock.Acquire{}, negative("wait_timeout", in.GetWaitTimeout())
	}
	if in.GetAsOf() < 0 {
		return lock.Acquire{}, invalid("as_of", "as_of is negative")
	}
	if in.GetAcknowledged() > 0 && in.GetAcknowledged() >= in.GetSequence() {
		return lock.Acquire{}, invalid("acknowledged", "acknowledged is not below sequence: this request could not be retried")
	}
	return lock.Acquire{
		Identity: identity, Client: client, Request: request, Owner: owner, Resource: resource, Mode: mode,
		TTL: ttl, Wait: duration(in.GetWaitTimeout()), AsOf: lock.LeaseTime(in.GetAsOf()),
		Sequence: in.GetSequence(), Acknowledged: in.GetAcknowledged(),
	}, nil
}

func parseRequest(client, request string) (lease.ClientID, lease.RequestID, *refusal) {
	c, err := lease.ParseClientID(client)
	if err != nil {
		return "", "", badName(err)
	}
	if request == "" {
		return "", "", invalid("request_id", "request_id is empty: without it a retry could take the lock twice")
	}
	r, err := lease.ParseRequestID(request)
	if err != nil {
		return "", "", badName(err)
	}
	return c, r, nil
}

func parseMode(mode lockpb.Mode) (lease.Mode, *refusal) {
	switch mode {
	case lockpb.Mode_MODE_UNSPECIFIED, lockpb.Mode_EXCLUSIVE:
		return lease.Exclusive, nil
	case lockpb.Mode_SHARED:
		return lease.Shared, nil
	}
	return 0, invalid("mode", fmt.Sprintf("mode %d is unknown: EXCLUSIVE is 1, SHARED is 2", mode))
}

func parseRenew(identity lease.Identity, in *lockpb.RenewRequest) (lock.Renew, *refusal) {
	id, err := lease.ParseID(in.GetLeaseId())
	if err != nil {
		return lock.Renew{}, badName(err)
	}
	ttl, refused := parseTTL(in.Ttl)
	if refused != nil {
		return lock.Renew{}, refused
	}
	return lock.Renew{Identity: identity, Lease: id, TTL: ttl}, nil
}

func parseRelease(identity lease.Identity, in *lockpb.ReleaseRequest) (lock.Release, *refusal) {
	id, err := lease.ParseID(in.GetLeaseId())
	if err != nil {
		return lock.Release{}, badName(err)
	}
	return lock.Release{Identity: identity, Lease: id}, nil
}

func parseCancel(identity lease.Identity, in *lockpb.CancelRequest) (lock.Cancel, *refusal) {
	client, request, refused := parseRequest(in.GetClientId(), in.GetRequestId())
	if refused != nil {
		return lock.Cancel{}, refused
	}
	if in.GetAsOf() < 0 {
		return lock.Cancel{}, invalid("as_of", "as_of is negative")
	}
	return lock.Cancel{Identity: identity, Client: client, Request: request, AsOf: lock.LeaseTime(in.GetAsOf()), TimedOut: in.GetTimedOut()}, nil
}

func parseBreak(identity lease.Identity, in *lockpb.BreakRequest) (lock.Break, *refusal) {
	resource, err := lease.ParseResource(in.GetResource())
	if err != nil {
		return lock.Break{}, badName(err)
	}
	return lock.Break{Identity: identity, Resource: resource}, nil
}

// page is a checked ListRequest.
type page struct {
	prefix string
	after  lease.Resource
	limit  int
	show   func(lease.Resource) bool // what the caller may see
}

func parseList(in *lockpb.ListRequest) (page, *refusal) {
	p := page{prefix: in.GetPrefix(), limit: int(in.GetLimit()), show: func(lease.Resource) bool { return true }}
	if refused := checkPrefix(p.prefix); refused != nil {
		return page{}, refused
	}
	if in.GetAfter() != "" {
		after, err := lease.ParseResource(in.GetAfter())
		if err != nil {
			return page{}, invalid("after", "after"+strings.TrimPrefix(err.Error(), "resource"))
		}
		p.after = after
	}
	switch {
	case p.limit == 0:
		p.limit = defaultPage
	case p.limit < 0 || p.limit > maxPage:
		return page{}, invalid("limit", fmt.Sprintf("limit %d is not between 1 and %d", p.limit, maxPage))
	}
	return p, nil
}

// parseTTL returns 0 for an absent ttl, which the machine replaces.
func parseTTL(ms *int32) (time.Duration, *refusal) {
	switch {
	case ms == nil:
		return 0, nil
	case *ms < 0:
		return 0, negative("ttl", *ms)
	case *ms == 0:
		return 0, invalid("ttl", "ttl is 0; leave it out for the default, or give milliseconds")
	}
	return duration(*ms), nil
}

func negative(field string, n int32) *refusal {
	return invalid(field, fmt.Sprintf("%s is negative (%d); it is in milliseconds", field, n))
}

func duration(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// milliseconds rounds down, so that nobody believes in time that is not there, and never wraps.
func milliseconds(d time.Duration) int32 {
	return int32(min(max(d.Milliseconds(), 0), 1<<31-1))
}
