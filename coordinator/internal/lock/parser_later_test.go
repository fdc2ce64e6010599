package lock_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// later reads the commands that cluster version 2 added; nil if it is none.
func (l line) later() lock.Command {
	switch l.words[0] {
	case "renew-many":
		c := lock.RenewMany{Identity: l.by()}
		for _, name := range l.words[1:] {
			c.Leases = append(c.Leases, l.p.lease(name))
		}
		return c
	case "kill":
		return l.kill()
	case "policy":
		return lock.PutPolicy{By: l.by(), Target: l.target(), Policy: l.policy()}
	case "unpolicy":
		return lock.DeletePolicy{By: l.by(), Target: l.target()}
	case "version":
		return lock.SetVersion{Version: uint32(l.count(1))}
	case "retire":
		return lock.RetireKey{Node: l.word(1), KeyID: l.word(2), After: l.instant("after", 0)}
	case "member":
		return lock.PutMember{Member: lock.Member{ID: l.word(1), Peer: l.options["peer"], GRPC: "g", HTTP: "h"}}
	case "drop":
		return lock.DropMember{ID: l.word(1)}
	case "recover":
		return lock.Recover{Cluster: l.word(1), Incarnation: uint32(l.count(2))}
	}
	return nil
}

func (l line) kill() lock.Command {
	client, id := l.request()
	c := lock.KillWait{Identity: l.by(), Client: client, Request: id}
	c.Cycle = []lock.Owner{{Identity: c.Identity, Name: string(client)}}
	if name, ok := l.options["lease"]; ok {
		c.Lease = l.p.lease(name)
	}
	if ahead, ok := l.options["ahead"]; ok {
		client, id, _ := strings.Cut(ahead, "/")
		c.Ahead = lock.RequestRef{Identity: l.by(), Client: lease.ClientID(client), Request: lease.RequestID(id)}
	}
	return c
}

func (l line) count(i int) uint64 {
	n, err := strconv.ParseUint(l.word(i), 10, 32)
	if err != nil {
		l.p.t.Fatal(err)
	}
	return n
}

func (l line) target() lock.Target {
	t := lock.Target{Kind: map[string]lock.TargetKind{"prefix": lock.TargetPrefix, "tenant": lock.TargetTenant}[l.word(1)]}
	if len(l.words) > 2 {
		t.Name = l.words[2]
	}
	return t
}

func (l line) policy() lock.Policy {
	duration := func(name string) *time.Duration {
		if _, ok := l.options[name]; !ok {
			return nil
		}
		return new(l.duration(name, 0))
	}
	flag := func(name string) *bool {
		if text, ok := l.options[name]; ok {
			return new(text == "yes")
		}
		return nil
	}
	number := func(name string) *int64 {
		if _, ok := l.options[name]; !ok {
			return nil
		}
		return new(int64(l.number(name, 0)))
	}
	p := lock.Policy{
		DefaultTTL: duration("default"), MinTTL: duration("min"), MaxTTL: duration("max"), MaxHold: duration("hold"),
		LockDelay: duration("delay"), Exclusive: flag("exclusive"), Shared: flag("shared"),
		MaxLeases: number("leases"), MaxRequests: number("requests"), AcquireRate: number("rate"), AcquireBurst: number("burst"),
	}
	if n := number("waiters"); n != nil {
		p.MaxWaiters = new(int(*n))
	}
	return p
}
