package logpb

import (
	"fmt"
	"math"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func encodeCommand(c lock.Command) *Command {
	switch c := c.(type) {
	case lock.Init:
		return &Command{Kind: &Command_Init{&Init{Cluster: c.Cluster, Version: c.Version, Config: encodeConfig(c.Config)}}}
	case lock.NewLeader:
		return &Command{Kind: &Command_NewLeader{&NewLeader{Node: c.Node, Term: c.Term}}}
	case lock.PutKey:
		return &Command{Kind: &Command_PutKey{encodeKey(c)}}
	case lock.Acquire:
		return &Command{Kind: &Command_Acquire{encodeAcquire(c)}}
	case lock.Renew:
		return &Command{Kind: &Command_Renew{&Renew{Identity: string(c.Identity), Lease: c.Lease[:], Ttl: int64(c.TTL)}}}
	case lock.Release:
		return &Command{Kind: &Command_Release{&Release{Identity: string(c.Identity), Lease: c.Lease[:]}}}
	case lock.Cancel:
		return &Command{Kind: &Command_Cancel{&Cancel{
			Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request), AsOf: int64(c.AsOf),
			TimedOut: c.TimedOut,
		}}}
	case lock.Detach:
		return &Command{Kind: &Command_Detach{&Detach{
			Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request), Call: c.Call,
		}}}
	case lock.Break:
		return &Command{Kind: &Command_Break{&Break{Identity: string(c.Identity), Resource: string(c.Resource)}}}
	case lock.Tick:
		return &Command{Kind: &Command_Tick{&Tick{}}}
	case lock.RenewMany:
		return &Command{Kind: &Command_RenewMany{encodeRenewMany(c)}}
	case lock.KillWait:
		return &Command{Kind: &Command_KillWait{encodeKillWait(c)}}
	case lock.PutPolicy:
		return &Command{Kind: &Command_PutPolicy{&PutPolicy{
			By: string(c.By), Target: encodeTarget(c.Target), Rules: encodeRules(c.Policy),
		}}}
	case lock.DeletePolicy:
		return &Command{Kind: &Command_DeletePolicy{&DeletePolicy{By: string(c.By), Target: encodeTarget(c.Target)}}}
	case lock.RetireKey:
		return &Command{Kind: &Command_RetireKey{&RetireKey{Node: c.Node, KeyId: c.KeyID, After: int64(c.After)}}}
	case lock.SetVersion:
		return &Command{Kind: &Command_SetVersion{&SetVersion{Version: c.Version}}}
	case lock.PutMember:
		return &Command{Kind: &Command_PutMember{encodeMember(c.Member)}}
	case lock.DropMember:
		return &Command{Kind: &Command_DropMember{&DropMember{Id: c.ID}}}
	case lock.Recover:
		return &Command{Kind: &Command_Recover{&Recover{Cluster: c.Cluster, Incarnation: c.Incarnation}}}
	}
	panic(fmt.Sprintf("logpb: a command of the unknown kind %T", c))
}

func encodeAcquire(c lock.Acquire) *Acquire {
	return &Acquire{
		Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request),
		Owner: c.Owner, Resource: string(c.Resource), Mode: LeaseMode(c.Mode),
		Ttl: int64(c.TTL), Wait: int64(c.Wait), Lease: c.Lease[:], Call: c.Call,
		AsOf: int64(c.AsOf), Sequence: c.Sequence, Acknowledged: c.Acknowledged,
	}
}

func encodeConfig(c lock.Config) *Config {
	return &Config{
		DefaultTtl: int64(c.DefaultTTL), MinTtl: int64(c.MinTTL), MaxTtl: int64(c.MaxTTL),
		MaxWait: int64(c.MaxWait), RetryWindow: int64(c.RetryWindow), Grace: int64(c.Grace),
		ClaimWindow: int64(c.ClaimWindow), HeadStart: int64(c.HeadStart),
		MaxWaiters: int64(c.MaxWaiters), MaxRequests: int64(c.MaxRequests), MaxExpiries: int64(c.MaxExpiries),
		MaxTenantRequests: int64(c.MaxTenantRequests),
	}
}

func encodeKey(k lock.PutKey) *PutKey { return &PutKey{Node: k.Node, KeyId: k.KeyID, Public: k.Public} }

func decodeCommand(message *Command) (lock.Command, error) {
	if err := known(message); err != nil {
		return nil, err
	}
	switch kind := message.GetKind().(type) {
	case *Command_Init:
		return decodeInit(kind.Init)
	case *Command_NewLeader:
		return lock.NewLeader{Node: kind.NewLeader.GetNode(), Term: kind.NewLeader.GetTerm()}, known(kind.NewLeader)
	case *Command_PutKey:
		return decodeKey(kind.PutKey)
	case *Command_Acquire:
		return decodeAcquire(kind.Acquire)
	case *Command_Renew:
		return decodeRenew(kind.Renew)
	case *Command_Release:
		return decodeRelease(kind.Release)
	case *Command_Cancel:
		return decodeCancel(kind.Cancel)
	case *Command_Detach:
		return decodeDetach(kind.Detach)
	case *Command_Break:
		c := kind.Break
		return lock.Break{Identity: lease.Identity(c.GetIdentity()), Resource: lease.Resource(c.GetResource())}, known(c)
	case *Command_Tick:
		return lock.Tick{}, known(kind.Tick)
	case *Command_RenewMany:
		return decodeRenewMany(kind.RenewMany)
	case *Command_KillWait:
		return decodeKillWait(kind.KillWait)
	case *Command_PutPolicy:
		return decodePutPolicy(kind.PutPolicy)
	case *Command_DeletePolicy:
		return decodeDeletePolicy(kind.DeletePolicy)
	case *Command_RetireKey:
		return decodeRetireKey(kind.RetireKey)
	case *Command_SetVersion:
		return lock.SetVersion{Version: kind.SetVersion.GetVersion()}, known(kind.SetVersion)
	case *Command_PutMember:
		m, err := decodeMember(kind.PutMember)
		return lock.PutMember{Member: m}, err
	case *Command_DropMember:
		return lock.DropMember{ID: kind.DropMember.GetId()}, known(kind.DropMember)
	case *Command_Recover:
		c := kind.Recover
		return lock.Recover{Cluster: c.GetCluster(), Incarnation: c.GetIncarnation()}, known(c)
	}
	return nil, fmt.Errorf("%w: a command of no known kind", ErrUnknown)
}

func decodeInit(c *Init) (lock.Command, error) {
	config, err := decodeConfig(c.GetConfig())
	if err != nil {
		return nil, err
	}
	return lock.Init{Cluster: c.GetCluster(), Version: c.GetVersion(), Config: config}, known(c)
}

func decodeConfig(c *Config) (lock.Config, error) {
	for _, n := range []int64{c.GetMaxWaiters(), c.GetMaxRequests(), c.GetMaxExpiries(), c.GetMaxTenantRequests()} {
		if n < 0 || n > math.MaxInt32 {
			return lock.Config{}, fmt.Errorf("%w: a count of %d in the config", ErrCorrupt, n)
		}
	}
	return lock.Config{
		DefaultTTL: time.Duration(c.GetDefaultTtl()), MinTTL: time.Duration(c.GetMinTtl()),
		MaxTTL: time.Duration(c.GetMaxTtl()), MaxWait: time.Duration(c.GetMaxWait()),
		RetryWindow: time.Duration(c.GetRetryWindow()), Grace: time.Duration(c.GetGrace()),
		ClaimWindow: time.Duration(c.GetClaimWindow()), HeadStart: time.Duration(c.GetHeadStart()),
		MaxWaiters: int(c.GetMaxWaiters()), MaxRequests: int(c.GetMaxRequests()), MaxExpiries: int(c.GetMaxExpiries()),
		MaxTenantRequests: int(c.GetMaxTenantRequests()),
	}, known(c)
}

func decodeKey(k *PutKey) (lock.PutKey, error) {
	return lock.PutKey{Node: k.GetNode(), KeyID: k.GetKeyId(), Public: k.GetPublic()}, known(k)
}

func decodeAcquire(c *Acquire) (lock.Command, error) {
	id, err := decodeLeaseID(c.GetLease())
	if err != nil {
		return nil, err
	}
	mode, err := decodeMode(c.GetMode())
	if err != nil {
		return nil, err
	}
	return lock.Acquire{
		Identity: lease.Identity(c.GetIdentity()), Client: lease.ClientID(c.GetClient()),
		Request: lease.RequestID(c.GetRequest()), Owner: c.GetOwner(), Resource: lease.Resource(c.GetResource()),
		Mode: mode, TTL: time.Duration(c.GetTtl()), Wait: time.Duration(c.GetWait()), Lease: id, Call: c.GetCall(),
		AsOf: lock.LeaseTime(c.GetAsOf()), Sequence: c.GetSequence(), Acknowledged: c.GetAcknowledged(),
	}, known(c)
}

func decodeRenew(c *Renew) (lock.Command, error) {
	id, err := decodeLeaseID(c.GetLease())
	if err != nil {
		return nil, err
	}
	return lock.Renew{Identity: lease.Identity(c.GetIdentity()), Lease: id, TTL: time.Duration(c.GetTtl())}, known(c)
}

func decodeRelease(c *Release) (lock.Command, error) {
	id, err := decodeLeaseID(c.GetLease())
	if err != nil {
		return nil, err
	}
	return lock.Release{Identity: lease.Identity(c.GetIdentity()), Lease: id}, known(c)
}

func decodeCancel(c *Cancel) (lock.Command, error) {
	return lock.Cancel{
		Identity: lease.Identity(c.GetIdentity()), Client: lease.ClientID(c.GetClient()),
		Request: lease.RequestID(c.GetRequest()), AsOf: lock.LeaseTime(c.GetAsOf()),
		TimedOut: c.GetTimedOut(),
	}, known(c)
}

func decodeDetach(c *Detach) (lock.Command, error) {
	return lock.Detach{
		Identity: lease.Identity(c.GetIdentity()), Client: lease.ClientID(c.GetClient()),
		Request: lease.RequestID(c.GetRequest()), Call: c.GetCall(),
	}, known(c)
}

func decodeLeaseID(b []byte) (lease.ID, error) {
	if len(b) != len(lease.ID{}) {
		return lease.ID{}, fmt.Errorf("%w: a lease id of %d bytes", ErrCorrupt, len(b))
	}
	return lease.ID(b), nil
}

func knownMode(m LeaseMode) bool {
	_, ok := LeaseMode_name[int32(m)]
	return ok
}

// decodeMode keeps an unset mode, which the machine refuses like any it does not allow.
func decodeMode(m LeaseMode) (lease.Mode, error) {
	if !knownMode(m) {
		return 0, fmt.Errorf("%w: mode %d", ErrUnknown, m)
	}
	return lease.Mode(m), nil
}
