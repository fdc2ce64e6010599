package logpb

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func encodeHeader(h lock.Header) *Header {
	message := &Header{
		Initialised: h.Initialised, Cluster: h.Cluster, Version: h.Version, Incarnation: h.Incarnation,
		Config: encodeConfig(h.Config), Index: h.Index, Now: int64(h.Now),
		Counter: h.Counter, Seq: h.Seq, HeadStart: int64(h.HeadStart),
	}
	for _, k := range h.Keys {
		message.Keys = append(message.Keys, encodeKey(lock.PutKey{Node: k.Node, KeyID: k.KeyID, Public: k.Public}))
		if k.Retiring() {
			message.Retiring = append(message.Retiring, &RetireKey{Node: k.Node, KeyId: k.KeyID, After: int64(k.Until)})
		}
	}
	for _, m := range h.Members {
		message.Members = append(message.Members, encodeMember(m))
	}
	for _, p := range h.Policies {
		message.Policies = append(message.Policies, &SavedRules{
			Target: encodeTarget(p.Target), Rules: encodeRules(p.Policy), Level: p.Level, At: int64(p.At),
		})
	}
	return message
}

func decodeHeader(h *Header) (lock.Header, error) {
	if h == nil {
		return lock.Header{}, fmt.Errorf("%w: it does not begin with a header", ErrCorrupt)
	}
	config, err := decodeConfig(h.GetConfig())
	if err != nil {
		return lock.Header{}, err
	}
	header := lock.Header{
		Initialised: h.GetInitialised(), Cluster: h.GetCluster(), Version: h.GetVersion(),
		Incarnation: h.GetIncarnation(), Config: config, Index: h.GetIndex(), Now: lock.LeaseTime(h.GetNow()),
		Counter: h.GetCounter(), Seq: h.GetSeq(), HeadStart: lock.LeaseTime(h.GetHeadStart()),
	}
	for _, k := range h.GetKeys() {
		key, err := decodeKey(k)
		if err != nil {
			return lock.Header{}, err
		}
		header.Keys = append(header.Keys, lock.Key{Node: key.Node, KeyID: key.KeyID, Public: key.Public})
	}
	return header, cmp.Or(decodeRetiring(h, &header), decodeMembers(h, &header), decodePolicies(h, &header), known(h))
}

// decodeRetiring marks the keys that retire.
func decodeRetiring(h *Header, to *lock.Header) error {
	for _, r := range h.GetRetiring() {
		at := slices.IndexFunc(to.Keys, func(k lock.Key) bool { return k.Node == r.GetNode() && k.KeyID == r.GetKeyId() })
		if at < 0 || r.GetAfter() <= 0 || to.Keys[at].Retiring() {
			return fmt.Errorf("%w: key %q of node %q cannot retire", ErrCorrupt, r.GetKeyId(), r.GetNode())
		}
		to.Keys[at].Until = lock.LeaseTime(r.GetAfter())
		if err := known(r); err != nil {
			return err
		}
	}
	return nil
}

func decodeMembers(h *Header, to *lock.Header) error {
	for _, m := range h.GetMembers() {
		member, err := decodeMember(m)
		if err != nil {
			return err
		}
		to.Members = append(to.Members, member)
	}
	return nil
}

func decodePolicies(h *Header, to *lock.Header) error {
	for _, p := range h.GetPolicies() {
		target, err := decodeTarget(p.GetTarget())
		if err != nil {
			return err
		}
		policy, err := decodeRules(p.GetRules())
		if err != nil {
			return err
		}
		to.Policies = append(to.Policies, lock.SavedPolicy{
			TargetedPolicy: lock.TargetedPolicy{Target: target, Policy: policy}, Level: p.GetLevel(), At: lock.LeaseTime(p.GetAt()),
		})
		if err := known(p); err != nil {
			return err
		}
	}
	return nil
}

func encodeDelay(d lock.SavedDelay) *Delay {
	return &Delay{Resource: string(d.Resource), Seq: d.Seq, Until: int64(d.Until), Mode: LeaseMode(d.Mode)}
}

func decodeDelay(d *Delay) (lock.SavedDelay, error) {
	mode, err := decodeMode(d.GetMode())
	if err != nil {
		return lock.SavedDelay{}, err
	}
	return lock.SavedDelay{
		Resource: lease.Resource(d.GetResource()), Seq: d.GetSeq(), Until: lock.LeaseTime(d.GetUntil()), Mode: mode,
	}, known(d)
}

func encodeClient(c lock.SavedClient) *Client {
	return &Client{
		Identity: string(c.Identity), Client: string(c.Client), Seq: c.Seq,
		Acknowledged: c.Acknowledged, Until: int64(c.Until),
	}
}

func decodeClient(c *Client) (lock.SavedClient, error) {
	return lock.SavedClient{
		Identity: lease.Identity(c.GetIdentity()), Client: lease.ClientID(c.GetClient()), Seq: c.GetSeq(),
		Acknowledged: c.GetAcknowledged(), Until: lock.LeaseTime(c.GetUntil()),
	}, known(c)
}

func encodeRequest(r lock.SavedRequest) *Request {
	message := &Request{
		Request: string(r.Request), Seq: r.Seq, Fingerprint: r.Fingerprint,
		Until: int64(r.Until), Sequence: r.Sequence, Stage: Stage(r.Stage),
	}
	switch r.Stage {
	case lock.StageWaiting:
		message.Claim = encodeClaim(r.Claim)
		message.Place = &Place{
			Deadline: int64(r.Waiter.Deadline), Grace: int64(r.Waiter.Grace),
			Call: r.Waiter.Call, Attached: r.Waiter.Attached,
		}
	case lock.StageHeld:
		message.Claim = encodeClaim(r.Claim)
		message.Lease = &Lease{
			Seq: r.Lease.Seq, Token: uint64(r.Lease.Token), Since: int64(r.Lease.Since),
			Deadline: int64(r.Lease.Deadline), Unclaimed: r.Lease.Unclaimed,
		}
	case lock.StageEnded, lock.StageCancelled, lock.StageForestalled:
	}
	return message
}

func encodeClaim(c lock.SavedClaim) *Claim {
	return &Claim{
		Resource: string(c.Resource), Lease: c.Lease[:], Owner: c.Owner, Ttl: int64(c.TTL), Mode: LeaseMode(c.Mode),
	}
}

func decodeRequest(r *Request) (lock.SavedRequest, error) {
	if _, ok := Stage_name[int32(r.GetStage())]; !ok {
		return lock.SavedRequest{}, fmt.Errorf("%w: stage %d", ErrUnknown, r.GetStage())
	}
	saved := lock.SavedRequest{
		Request: lease.RequestID(r.GetRequest()), Seq: r.GetSeq(), Fingerprint: r.GetFingerprint(),
		Until: lock.LeaseTime(r.GetUntil()), Sequence: r.GetSequence(), Stage: lock.Stage(r.GetStage()),
	}
	var err error
	if r.GetClaim() != nil {
		if saved.Claim, err = decodeClaim(r.GetClaim()); err != nil {
			return lock.SavedRequest{}, err
		}
	}
	if p := r.GetPlace(); p != nil {
		saved.Waiter, err = decodePlace(p)
	}
	if l := r.GetLease(); l != nil && err == nil {
		saved.Lease, err = decodeLease(l)
	}
	if err != nil {
		return lock.SavedRequest{}, err
	}
	return saved, known(r)
}

func decodeClaim(c *Claim) (lock.SavedClaim, error) {
	id, err := decodeLeaseID(c.GetLease())
	if err != nil {
		return lock.SavedClaim{}, err
	}
	mode, err := decodeMode(c.GetMode())
	if err != nil {
		return lock.SavedClaim{}, err
	}
	return lock.SavedClaim{
		Resource: lease.Resource(c.GetResource()), Lease: id, Owner: c.GetOwner(),
		TTL: time.Duration(c.GetTtl()), Mode: mode,
	}, known(c)
}

func decodePlace(p *Place) (lock.SavedWaiter, error) {
	return lock.SavedWaiter{
		Deadline: lock.LeaseTime(p.GetDeadline()), Grace: lock.LeaseTime(p.GetGrace()),
		Call: p.GetCall(), Attached: p.GetAttached(),
	}, known(p)
}

func decodeLease(l *Lease) (lock.SavedLease, error) {
	return lock.SavedLease{
		Seq: l.GetSeq(), Token: lease.Token(l.GetToken()), Since: lock.LeaseTime(l.GetSince()),
		Deadline: lock.LeaseTime(l.GetDeadline()), Unclaimed: l.GetUnclaimed(),
	}, known(l)
}
