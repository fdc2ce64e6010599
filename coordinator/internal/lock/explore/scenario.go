// Package explore has every state of a lock machine visited that a few requests, a network and a store can lead to.
//
// The machine is the real one; the log around it, its callers and the network are the adversary. What was sent once may
// arrive at any later time, any number of times, or never, so lost, late, doubled and overtaking messages need no steps
// of their own. Every state is found on a machine that was restored from a snapshot, and gone on from on one that took
// the whole way: a crash and a restore at any point are in every path, and both machines must come to the same state.
// What happens is judged by chaos/invariant; the store is the model of chaos/model/fence.
package explore

import (
	"time"

	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Ask is an acquire that a client may make.
type Ask struct {
	Client       lease.ClientID
	Request      lease.RequestID
	Owner        string
	Resource     uint8 // 0 or 1
	Mode         lease.Mode
	Wait         time.Duration
	Sequence     uint64
	Acknowledged uint64
}

// Scenario is a small world. Fewer kinds of steps let an exploration of the same size go farther.
type Scenario struct {
	Name   string
	Config lock.Config
	Asks   []Ask        // at most fence.Sessions
	Policy *lock.Policy // of every resource; nil: none
	Copies int          // of each acquire, 1 to 3
	Share  int          // of the states of a whole exploration, in percent
	May    May          // happen, besides acquires, their answers and the passing of time
	Must   []string     // what has to be met: names of situations
	// Deep has to be met too, by an exploration of DeepStates and more.
	Deep []string
}

// May is a set of kinds of steps.
type May uint16

// What may happen.
const (
	Releases May = 1 << iota
	Renewals     // by those who hold
	Cancels      // by clients, and by nodes whose wait is over
	HangUps      // calls go away
	Thefts       // releases and renewals by another identity
	Elections
	Breaks
	Recoveries
	Batches // entries of several commands
	Kills   // of waits, for deadlocks across groups
	Store   // clients take their tokens to a store

	Everything = Releases | Renewals | Cancels | HangUps | Thefts | Elections | Breaks | Recoveries | Batches | Kills | Store
)

// DeepStates is the size from which an exploration of all scenarios meets what only long paths lead to.
const DeepStates = 5_000_000

const (
	maxAsks   = fence.Sessions
	maxCopies = 3
	maxLag    = 3 * time.Second // of the machine's clock behind the leader's
	second    = time.Second
)

var resources = [fence.Resources]lease.Resource{"r1", "r2"}

const identity lease.Identity = "t:x"

// small is a configuration in which little time and few requests reach every bound.
func small() lock.Config {
	return lock.Config{
		DefaultTTL: 2 * second, MinTTL: second, MaxTTL: 4 * second,
		MaxWait: 3 * second, RetryWindow: second, Grace: second, ClaimWindow: second, HeadStart: second,
		MaxWaiters: 2, MaxRequests: 2, MaxExpiries: 1,
	}
}

// Scenarios are the worlds that are explored, in this order.
func Scenarios() []Scenario {
	x, s := lease.Exclusive, lease.Shared
	return []Scenario{
		{
			Name: "everything", Config: small(), Copies: 2, Share: 32, May: Everything &^ Kills,
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x, Wait: 2 * second},
				{Client: "b", Request: "1", Mode: s, Wait: 2 * second},
				{Client: "c", Request: "1", Mode: s, Wait: 3 * second},
			},
			Must: []string{
				granted, grantedLate, grantedOnReturn, freeAndAway, passedAway, joined, sharedWaits, retriedHeld, retriedEnded,
				retriedCancelled, forestalled, forestalledHeard, expired, unclaimed, timedOut, abandoned, stale,
				keptForHead, renewedLate, renewRefused, impostor, broken, recovered, twoGrants, lateAnswer,
			},
		},
		{
			Name: "two resources", Config: small(), Copies: 2, Share: 14, May: Releases | Renewals | Cancels | HangUps | Elections | Batches | Kills,
			Asks: []Ask{
				{Client: "a", Request: "1", Resource: 0, Mode: x},
				{Client: "b", Request: "1", Resource: 1, Mode: x},
				{Client: "a", Request: "2", Resource: 1, Mode: x, Wait: 3 * second},
				{Client: "b", Request: "2", Resource: 0, Mode: s, Wait: 3 * second},
			},
			Must: []string{granted, grantedLate, deadlock, killed, expired, twoExpire, held, freeAndAway, forestalledHeard},
		},
		{
			Name: "numbered requests", Config: small(), Copies: 2, Share: 14, May: Releases | Cancels | Elections | Recoveries,
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x, Sequence: 1},
				{Client: "a", Request: "2", Mode: x, Wait: second, Sequence: 2, Acknowledged: 1},
				{Client: "b", Request: "1", Mode: x, Wait: 3 * second},
				{Client: "a", Request: "3", Mode: s, Wait: 2 * second, Sequence: 3, Acknowledged: 1},
			},
			Must: []string{granted, grantedLate, alreadyHeld, acknowledged, tooManyRequests, retriedEnded, recovered, forgotten},
			Deep: []string{tooOld},
		},
		{
			Name: "window", Config: small(), Copies: 2, Share: 6, May: Releases | Cancels,
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x},
				{Client: "b", Request: "1", Mode: x, Wait: second},
			},
			Must: []string{granted, retriedHeld, retriedEnded},
			Deep: []string{tooOld, forgotten},
		},
		{
			Name: "queue", Config: small(), Copies: 2, Share: 12, May: Releases | HangUps | Elections,
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x},
				{Client: "b", Request: "1", Mode: x, Wait: 3 * second},
				{Client: "c", Request: "1", Mode: s, Wait: 3 * second},
				{Client: "d", Request: "1", Mode: s, Wait: 3 * second},
			},
			Must: []string{granted, grantedLate, freeAndAway, grantedOnReturn, abandoned},
			Deep: []string{keptForHead, passedAway, stale},
		},
		{
			Name: "policies", Config: small(), Copies: 1, Share: 4, May: Releases | Renewals | HangUps | Breaks,
			Policy: &lock.Policy{LockDelay: new(2 * second), MaxHold: new(3 * second)},
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x},
				{Client: "b", Request: "1", Mode: s, Wait: 3 * second},
				{Client: "c", Request: "1", Mode: s},
			},
			Must: []string{granted, delayed},
			Deep: []string{heldTooLong, waitedOut},
		},
		{
			Name: "ties", Config: small(), Copies: 1, Share: 4, May: Releases,
			Asks: []Ask{
				{Client: "a", Request: "1", Resource: 0, Mode: x},
				{Client: "b", Request: "1", Resource: 1, Mode: x},
				{Client: "a", Request: "2", Resource: 0, Mode: x},
			},
			Must: []string{granted, expired},
			Deep: []string{twoExpire},
		},
		{
			Name: "store", Config: small(), Copies: 1, Share: 14, May: Releases | Store,
			Asks: []Ask{
				{Client: "a", Request: "1", Mode: x},
				{Client: "b", Request: "1", Mode: s, Wait: 3 * second},
				{Client: "c", Request: "1", Mode: s, Wait: 3 * second},
			},
			Must: []string{granted, grantedLate, tookOver, gaveUp, storeRestarted},
			Deep: []string{endedOld, refusedStale, lateAnswer, joinedFloor},
		},
	}
}
