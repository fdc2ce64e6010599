package api

import (
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// beatOf is the command of a heartbeat: its leases are of one group, as they are unless the cluster has several. Any other one
// takes more than one command, and has none.
func (x *session) beatOf(c *sessionCall, in *lockpb.HeartbeatRequest) (*shard, lock.Command, *refusal) {
	out, pulses, refused := x.split(in)
	if refused != nil {
		return nil, nil, refused
	}
	if len(pulses) != 1 || len(pulses[0].places) != len(out.GetBeats()) {
		return x.shards[0], nil, nil
	}
	p := pulses[0]
	cmd := lock.RenewMany{Identity: x.identity, Leases: p.leases}
	if p.shard.info().Version < lock.Needs(cmd) {
		return p.shard, nil, nil
	}
	c.pulse = p
	return p.shard, cmd, nil
}

// beaten is the answer of a heartbeat that was one command.
func (c *sessionCall) beaten() (*lockpb.Answer, *refusal) {
	out, refused := c.shard.beats(c.pulse, c.outcome)
	return &lockpb.Answer{Kind: &lockpb.Answer_Heartbeat{Heartbeat: out}}, refused
}
