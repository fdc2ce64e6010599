package explore

import (
	"fmt"

	"github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// kind is what happens in a step; what it happens to is its argument: an ask and one of its copies, or a resource.
type kind uint8

const (
	begin    kind = iota // the client sends its first copy
	again                // and another one
	arrive               // a copy is in the log
	learn                // the answer to it is with the client
	release              // its client's release of the copy's lease is in the log
	steal                // that of another identity
	renew                // its client's renewal is in the log
	cancel               // its cancel is in the log
	giveUp               // the same, of a node that waited for long enough
	hangUp               // the copy's call went away: its detach is in the log
	pass                 // a second, and nothing reaches the log
	tick                 // an entry that only has the time
	elect                // the first entry of a new leader
	breaks               // an administrator's break is in the log
	recovers             // the cluster's life ends and another begins
	kill                 // the wait of one who waits for another ask's lease is ended: the copy is that ask
	rush                 // releases and acquires are in the log, in one entry
	crush                // renewals and acquires are in the log, in one entry
	contact              // the client shows its token to the store
	end                  // a takeover ends an old session
	raise                // a takeover raises the floor
	late                 // a takeover comes to its deadline
	leave                // the client closes its session
	restart              // the store crashes
)

func stepOf(k kind, ask, copy uint8) explore.Step {
	return explore.Step(k)<<8 | explore.Step(ask)<<4 | explore.Step(copy)
}

func parts(s explore.Step) (k kind, ask, copy uint8) {
	return kind(s >> 8), uint8(s>>4) & 0xf, uint8(s) & 0xf
}

// Steps lists what can happen.
func (s *system) Steps(room []explore.Step) []explore.Step {
	for i := range s.Asks {
		room = s.callerSteps(room, uint8(i))
	}
	if s.world.now.Sub(s.applied) < maxLag {
		room = append(room, stepOf(pass, 0, 0))
	}
	room = append(room, stepOf(tick, 0, 0))
	room = s.maybe(room, Elections, elect, 0, 0)
	room = s.maybe(room, Breaks, breaks, 0, 0)
	room = s.maybe(room, Recoveries, recovers, 0, 0)
	if s.May&Batches != 0 {
		room = s.batchSteps(room)
	}
	if s.May&Store != 0 {
		room = s.storeSteps(room)
	}
	return room
}

// maybe appends a step if the scenario has its kind.
func (s *system) maybe(room []explore.Step, may May, k kind, ask, copy uint8) []explore.Step {
	if s.May&may == 0 {
		return room
	}
	return append(room, stepOf(k, ask, copy))
}

func (s *system) callerSteps(room []explore.Step, i uint8) []explore.Step {
	a := &s.world.asks[i]
	if !a.begun {
		return append(room, stepOf(begin, i, 0))
	}
	if int(a.copies) < s.Copies && a.answer != known {
		room = append(room, stepOf(again, i, 0))
	}
	for k := range a.copies {
		room = s.maybe(append(room, stepOf(arrive, i, k)), HangUps, hangUp, i, k)
		if a.answer == known {
			room = s.maybe(room, Releases, release, i, k)
		}
	}
	room = s.maybe(s.maybe(room, Cancels, cancel, i, 0), Cancels, giveUp, i, 0)
	for j := range s.Asks {
		if j != int(i) && s.world.asks[j].lease != 0 && s.Asks[i].Wait > 0 {
			room = s.maybe(room, Kills, kill, i, uint8(j))
		}
	}
	switch a.answer {
	case inFlight:
		room = append(room, stepOf(learn, i, 0))
	case known:
		room = s.maybe(s.maybe(room, Renewals, renew, i, 0), Thefts, steal, i, 0)
	case unanswered:
	}
	return room
}

func (s *system) batchSteps(room []explore.Step) []explore.Step {
	if len(s.batch(rush)) > 1 {
		room = append(room, stepOf(rush, 0, 0))
	}
	if len(s.batch(crush)) > 1 {
		room = append(room, stepOf(crush, 0, 0))
	}
	return room
}

func (s *system) storeSteps(room []explore.Step) []explore.Step {
	store, used := &s.world.store, false
	for i := range s.Asks {
		a := &s.world.asks[i]
		if a.answer == known && !store.Sessions[i].Bound && !a.raises {
			room = append(room, stepOf(contact, uint8(i), 0))
		}
		if store.Sessions[i].Bound {
			used = true
			room = append(room, stepOf(leave, uint8(i), 0))
			if store.Lower(uint8(i), s.Asks[i].Resource) {
				room = append(room, stepOf(end, uint8(i), 0))
			}
		}
	}
	for r := range uint8(fence.Resources) {
		if store.Takeovers[r].Running {
			used = true
			room = append(room, stepOf(late, r, 0))
			if store.Ready(r) {
				room = append(room, stepOf(raise, r, 0))
			}
		}
	}
	if used {
		room = append(room, stepOf(restart, 0, 0))
	}
	return room
}

// batch is an entry of several commands.
func (s *system) batch(k kind) []lock.Command {
	var commands []lock.Command
	var renewed []lease.ID
	for i := range s.Asks {
		a := &s.world.asks[i]
		if a.answer != known {
			continue
		}
		id := leaseID(uint8(i), a.lease-1)
		if k == rush {
			commands = append(commands, lock.Release{Identity: identity, Lease: id})
		} else {
			renewed = append(renewed, id)
		}
	}
	if len(renewed) > 0 {
		commands = append(commands, lock.RenewMany{Identity: identity, Leases: renewed})
	}
	for i := range s.Asks {
		if a := &s.world.asks[i]; a.begun && a.answer != known {
			commands = append(commands, s.acquire(uint8(i), a.copies-1))
		}
	}
	return commands
}

// entry is the log entry of a step; nil if it is none.
func (s *system) entry(step explore.Step) []lock.Command {
	k, i, n := parts(step)
	a := &s.world.asks[i]
	switch k {
	case arrive:
		return []lock.Command{s.acquire(i, n)}
	case release:
		return []lock.Command{lock.Release{Identity: identity, Lease: leaseID(i, n)}}
	case steal:
		return []lock.Command{
			lock.Release{Identity: "t:thief", Lease: leaseID(i, a.lease-1)}, lock.Renew{Identity: "t:thief", Lease: leaseID(i, a.lease-1)},
		}
	case renew:
		return []lock.Command{lock.Renew{Identity: identity, Lease: leaseID(i, a.lease-1)}}
	case cancel, giveUp:
		return []lock.Command{s.cancel(i, k == giveUp)}
	case hangUp:
		return []lock.Command{lock.Detach{Identity: identity, Client: s.Asks[i].Client, Request: s.Asks[i].Request, Call: call(i, n)}}
	case kill:
		ask := &s.Asks[i]
		return []lock.Command{lock.KillWait{
			Identity: identity, Client: ask.Client, Request: ask.Request, Lease: leaseID(n, s.world.asks[n].lease-1),
		}}
	case tick:
		return []lock.Command{lock.Tick{}}
	case elect:
		return []lock.Command{lock.NewLeader{Node: "n"}}
	case breaks:
		return []lock.Command{lock.Break{Identity: "admin", Resource: resources[0]}}
	case recovers:
		return []lock.Command{lock.Recover{Cluster: cluster, Incarnation: s.machine().Info().Incarnation + 1}}
	case rush, crush:
		return s.batch(k)
	default:
		return nil
	}
}

// Tell says in words what a step will be.
func (s *system) Tell(step explore.Step) string {
	k, i, n := parts(step)
	var who string
	if int(i) < len(s.Asks) {
		ask := &s.Asks[i]
		mode := "exclusive"
		if ask.Mode == lease.Shared {
			mode = "shared"
		}
		who = fmt.Sprintf("%s's request %s (%s, on %s)", ask.Client, ask.Request, mode, resources[ask.Resource])
	}
	told := map[kind]string{
		begin:    who + ": its client sends it",
		again:    who + ": its client hears nothing and sends it again",
		arrive:   fmt.Sprintf("%s: copy %d of it is committed", who, n+1),
		learn:    who + ": the answer reaches its client, which knows its lease and token from here on",
		release:  fmt.Sprintf("%s: its release with the lease id of copy %d is committed", who, n+1),
		steal:    who + ": a release and a renewal of its lease by another identity are committed",
		renew:    who + ": its renewal is committed",
		cancel:   who + ": its cancel is committed",
		giveUp:   who + ": the node that waits for it gives up, and its cancel is committed",
		hangUp:   fmt.Sprintf("%s: the call with copy %d of it is gone, and its detach is committed", who, n+1),
		kill:     fmt.Sprintf("%s: its wait for the lease of request %d is ended, for a deadlock", who, n+1),
		pass:     "a second passes",
		tick:     "an entry with nothing but the time is committed",
		elect:    "a new leader's first entry is committed",
		breaks:   "an administrator's break of r1 is committed",
		recovers: "the cluster is recovered without a majority",
		rush:     "all known leases are released and what waits for an answer is asked for again, in one entry",
		crush:    "all known leases are renewed and what waits for an answer is asked for again, in one entry",
		contact:  who + ": its client shows the token to the store",
		end:      who + ": a takeover ends its session",
		raise:    fmt.Sprintf("the takeover of %s raises the floor", resources[i%fence.Resources]),
		late:     fmt.Sprintf("the takeover of %s comes to its deadline", resources[i%fence.Resources]),
		leave:    who + ": its client closes its session",
		restart:  "the store crashes and starts again",
	}[k]
	if s.entry(step) != nil {
		told += fmt.Sprintf(" [%v]", s.world.now.Sub(0))
	}
	return told
}
