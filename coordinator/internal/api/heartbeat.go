package api

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

const opHeartbeat operation = "heartbeat"

// Bounds of one heartbeat: its leases, and its bytes.
const (
	maxHeartbeat        = 1000
	maxHeartbeatRequest = 64 << 10
)

// Heartbeat implements lockpb.LocksServer. Renewals are one command in each group that they are for.
func (s *Server) Heartbeat(ctx context.Context, in *lockpb.HeartbeatRequest) (*lockpb.HeartbeatResponse, error) {
	return serve(ctx, s, opHeartbeat, func(ctx context.Context) (*lockpb.HeartbeatResponse, *refusal) {
		return s.heartbeatAnywhere(ctx, in)
	})
}

// pulse is the part of a heartbeat that is for one group.
type pulse struct {
	shard  *shard
	leases []lease.ID
	places []int // of the leases in the heartbeat
	ask    *lockpb.HeartbeatRequest
}

// heartbeatAnywhere asks every group for its leases, and merges the answers. What is refused is refused for each lease
// by itself, unless nothing could be answered.
func (s *Server) heartbeatAnywhere(ctx context.Context, in *lockpb.HeartbeatRequest) (*lockpb.HeartbeatResponse, *refusal) {
	out, pulses, refused := s.split(in)
	if refused != nil {
		return nil, refused
	}
	if len(pulses) > 1 { // a group without a leader must not keep the answers of the others from the client for long
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.config.Patience)
		defer cancel()
	}
	answers := make([]*lockpb.HeartbeatResponse, len(pulses))
	refusals := make([]*refusal, len(pulses))
	var asking sync.WaitGroup
	for i, p := range pulses[min(1, len(pulses)):] {
		asking.Go(func() { answers[i+1], refusals[i+1] = p.shard.heartbeat(ctx, p) })
	}
	if len(pulses) > 0 {
		answers[0], refusals[0] = pulses[0].shard.heartbeat(ctx, pulses[0])
	}
	asking.Wait()
	if len(pulses) == 1 && refusals[0] != nil && len(pulses[0].places) == len(out.Beats) {
		return nil, refusals[0]
	}
	for i, p := range pulses {
		p.merge(out, answers[i], refusals[i])
	}
	return out, nil
}

// split checks a heartbeat and says which leases are for which group. The leases that none can have are refused in out.
func (s *Server) split(in *lockpb.HeartbeatRequest) (out *lockpb.HeartbeatResponse, pulses []*pulse, refused *refusal) {
	switch n := len(in.GetLeaseIds()); {
	case n == 0:
		return nil, nil, invalid("lease_ids", "lease_ids is empty")
	case n > maxHeartbeat:
		return nil, nil, invalid("lease_ids", fmt.Sprintf("lease_ids has %d entries, at most %d are renewed at once", n, maxHeartbeat))
	}
	if size := proto.Size(in); size > maxHeartbeatRequest { // in a session only: see maxSize
		return nil, nil, tooLong(size, maxHeartbeatRequest)
	}
	out = &lockpb.HeartbeatResponse{Beats: make([]*lockpb.Beat, len(in.GetLeaseIds()))}
	byShard := make(map[*shard]*pulse, 1)
	for i, raw := range in.GetLeaseIds() {
		id, err := lease.ParseID(raw)
		var sh *shard
		var refused *refusal
		if err != nil {
			refused = badName(err)
		} else {
			sh, refused = s.ofLease(id)
		}
		if refused != nil {
			out.Beats[i] = &lockpb.Beat{LeaseId: raw, Refusal: refused.detail}
			continue
		}
		p := byShard[sh]
		if p == nil {
			p = &pulse{shard: sh, ask: &lockpb.HeartbeatRequest{Tickets: in.GetTickets(), KeyId: in.GetKeyId()}}
			byShard[sh] = p
			pulses = append(pulses, p)
		}
		p.leases, p.places = append(p.leases, id), append(p.places, i)
		p.ask.LeaseIds = append(p.ask.LeaseIds, raw)
	}
	return out, pulses, nil
}

// merge puts the answer of one group into the whole.
func (p *pulse) merge(out, part *lockpb.HeartbeatResponse, refused *refusal) {
	for i, place := range p.places {
		switch {
		case refused != nil:
			out.Beats[place] = &lockpb.Beat{LeaseId: p.ask.GetLeaseIds()[i], Refusal: proto.CloneOf(refused.detail)}
		case i < len(part.GetBeats()):
			out.Beats[place] = part.GetBeats()[i]
		default: // another node sent too few
			unknown := refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the leader did not answer for this lease")
			out.Beats[place] = &lockpb.Beat{LeaseId: p.ask.GetLeaseIds()[i], Refusal: unknown.detail}
		}
	}
	out.AsOf = max(out.AsOf, part.GetAsOf())
}

func (sh *shard) heartbeat(ctx context.Context, p *pulse) (*lockpb.HeartbeatResponse, *refusal) {
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.HeartbeatResponse, *refusal) { return sh.heartbeatHere(ctx, p) },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.HeartbeatResponse, error) {
			return leader.Heartbeat(ctx, p.ask)
		})
}

// heartbeatHere renews on the leader.
func (sh *shard) heartbeatHere(ctx context.Context, p *pulse) (*lockpb.HeartbeatResponse, *refusal) {
	cmd := lock.RenewMany{Identity: sh.identity(ctx), Leases: p.leases}
	if sh.info().Version < lock.Needs(cmd) {
		return sh.renewEach(ctx, p, cmd.Identity)
	}
	out, refused := sh.propose(ctx, cmd)
	if refused != nil {
		return nil, refused
	}
	return sh.beats(p, out)
}

// beats answers from the results of a committed renewal.
func (sh *shard) beats(p *pulse, out group.Outcome) (*lockpb.HeartbeatResponse, *refusal) {
	renewed, ok := out.Result.(lock.RenewedMany)
	if !ok || len(renewed.Renewals) != len(p.leases) {
		return nil, unexpected("RenewMany", out.Result)
	}
	beats := make([]lockpb.Beat, len(p.leases))
	answer := &lockpb.HeartbeatResponse{Beats: make([]*lockpb.Beat, len(p.leases)), AsOf: int64(out.Now)}
	for i, r := range renewed.Renewals {
		b := &beats[i]
		b.LeaseId = p.ask.GetLeaseIds()[i]
		if r.Refused != nil {
			b.Refusal = refused(*r.Refused, out.Now).detail
		} else {
			b.Remaining, b.FencingToken = milliseconds(r.Deadline.Sub(out.Now)), uint64(r.Token)
		}
		answer.Beats[i] = b
	}
	if p.ask.GetTickets() || sh.outdated(p.ask.GetKeyId()) {
		sh.ticket(p, answer.GetBeats())
	}
	return answer, nil
}

// ticket signs the leases that were renewed and still stand. One whose ticket cannot be signed is renewed all the same: a
// ticket that is missing does not make it less held.
func (sh *shard) ticket(p *pulse, beats []*lockpb.Beat) {
	grants := make([]lock.Grant, len(p.leases))
	sh.group.View(func(m *lock.Machine) {
		for i, id := range p.leases {
			grants[i], _ = m.Lease(id)
		}
	})
	for i, b := range beats {
		if b.GetRefusal() != nil || grants[i].Token == 0 {
			continue
		}
		if signed, refused := sh.sign(grants[i]); refused == nil {
			b.Ticket = signed
		}
	}
}

// outdated reports whether tickets of this key should be signed anew: it is retired, or gone.
func (sh *shard) outdated(keyID string) bool {
	if keyID == "" {
		return false
	}
	good := false
	sh.group.View(func(m *lock.Machine) {
		for _, k := range m.Keys() {
			good = good || k.KeyID == keyID && !k.Retiring()
		}
	})
	return !good
}

// renewEach is a heartbeat in a cluster whose version does not know the command for it yet. What is left of each lease
// counts from the last entry that renewed one: a little less than there is.
func (sh *shard) renewEach(ctx context.Context, p *pulse, identity lease.Identity) (*lockpb.HeartbeatResponse, *refusal) {
	outcomes := make([]group.Outcome, len(p.leases))
	errs := make([]error, len(p.leases))
	places := make(chan struct{}, maxRenewals)
	var renewing sync.WaitGroup
	for i, id := range p.leases {
		places <- struct{}{}
		renewing.Go(func() {
			defer func() { <-places }()
			outcomes[i], errs[i] = sh.group.Propose(ctx, lock.Renew{Identity: identity, Lease: id})
		})
	}
	renewing.Wait()
	var last group.Outcome
	renewals := make([]lock.Renewal, len(p.leases))
	for i, out := range outcomes {
		if errs[i] != nil {
			return nil, groupRefusal(errs[i])
		}
		switch result := out.Result.(type) {
		case lock.Renewed:
			renewals[i] = lock.Renewal{Token: result.Token, Deadline: result.Deadline}
		case lock.Refused:
			renewals[i].Refused = &result
		default:
			return nil, unexpected("Renew", out.Result)
		}
		if out.Index > last.Index {
			last = out
		}
	}
	last.Result = lock.RenewedMany{Renewals: renewals}
	return sh.beats(p, last)
}

// maxRenewals bounds the renewals of one heartbeat that are proposed at once.
const maxRenewals = 128
