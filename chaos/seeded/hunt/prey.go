package main

import (
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// layer is a part of a package's tests.
type layer struct {
	name  string
	pkg   string
	args  []string
	bound time.Duration // of wall time, on a busy machine
}

const (
	locks    = "./coordinator/internal/lock"
	groups   = "./coordinator/internal/group"
	memories = "./fencestore/memstore"
	postgres = "./fencestore/pgstore"
	tickets  = "./coordinator/ticket"
	gates    = "./proxy/gate"
)

var (
	clock       = layer{"lease clock", groups, []string{"-test.run=^TestLeaseClock"}, time.Minute}
	errorTable  = layer{"table of Raft errors", groups, []string{"-test.run=^TestWhatAnError"}, time.Minute}
	conformance = layer{"conformance of stores", memories, []string{"-test.run=^TestConformance$"}, 2 * time.Minute}
	contacts    = layer{"explorer: gate", gates, []string{"-test.run=^TestExplore$"}, 2 * time.Minute}
	takeovers   = layer{"explorer: store", memories, []string{"-test.run=^TestExplore$"}, 2 * time.Minute}
	seeds       = layer{"simulator", groups, []string{"-test.run=^TestSeeds$", "-sim.hours=100"}, 5 * time.Minute}
	timeouts    = layer{"takeover timeouts", memories, []string{"-test.run=^TestTakeoverThatTimesOut"}, time.Minute}
)

// exploring is the explorer in one of its scenarios.
func exploring(scenario string) layer {
	states := "600000" // of all scenarios together
	if scenario == "ties" {
		states = "5000000" // a twenty-fifth of them
	}
	args := []string{"-test.run=^TestExplore$", "-explore.states=" + states, "-explore.scenario=" + scenario}
	return layer{"explorer: " + scenario, locks, args, 10 * time.Minute}
}

// storing is one test of the store in PostgreSQL.
func storing(test string) layer {
	return layer{"PostgreSQL: " + test, postgres, []string{"-test.run=^Test" + test + "$"}, 3 * time.Minute}
}

// grouping is one test of a Raft group.
func grouping(test string, more ...string) layer {
	return layer{"group: " + test, groups, append([]string{"-test.run=^Test" + test + "$"}, more...), 3 * time.Minute}
}

// quarry is a bug, the layer that must find it, and what it says then.
type quarry struct {
	bug   seeded.Bug
	layer layer
	says  string
}

var prey = []quarry{
	{seeded.TokenAfterRecovery, exploring("everything"), "invariant 2"},
	{seeded.TokenPerEntry, exploring("everything"), "invariant 2"},
	{seeded.TokenForJoin, exploring("everything"), "invariant 2"},
	{seeded.ExpiryUnconditional, exploring("everything"), "invariant 9"},
	{seeded.DeadlinesAtElection, exploring("everything"), "nobody renewed it"},
	{seeded.MemoryNotInSnapshot, exploring("everything"), "invariant 7"},
	{seeded.MemoryWithoutClient, exploring("everything"), "invariant 7"},
	{seeded.MemoryTooShort, exploring("everything"), "invariant 7"},
	{seeded.DeadLeaseReported, exploring("everything"), "invariant 7"},
	{seeded.CancelKeepsWaiter, exploring("everything"), "was cancelled and goes on"},
	{seeded.CancelForgotten, exploring("everything"), "invariant 7"},
	{seeded.UnattachedGranted, exploring("queue"), "invariant 8"},
	{seeded.OverdueGranted, exploring("everything"), "invariant 8"},
	{seeded.StaleDetach, exploring("queue"), "the detach of call"},
	{seeded.LastInFirstOut, exploring("everything"), "is not granted"},
	{seeded.SharedPassesExclusive, exploring("everything"), "invariant 8"},
	{seeded.HeadStartIgnored, exploring("everything"), "is not granted"},
	{seeded.ReleaseWithoutMatch, exploring("everything"), "invariant 5"},
	{seeded.ReleaseByAnother, exploring("everything"), "invariant 5"},
	{seeded.DelayIgnored, exploring("policies"), "and is closed until"},
	{seeded.DeadlockUnseen, exploring("two resources"), "waits for itself"},
	{seeded.SnapshotInMapOrder, exploring("everything"), "lead to two states"},
	{seeded.TiesByHistory, exploring("ties"), "lead to two states"},
	{seeded.FoldedByIdleness, exploring("everything"), "would refuse a live lease"},
	{seeded.ClockOverElection, clock, "TestLeaseClock"},
	{seeded.ClockCatchesUp, clock, "DoesNotCatchUpAfterAStall"},
	{seeded.ClockOverElection, seeds, "invariant 9"},
	{seeded.ClockCatchesUp, seeds, "invariant 9"},
	{seeded.DeadlinesAtElection, seeds, "invariant 9"},
	{seeded.ExpiryUnconditional, seeds, "invariant 9"},
	{seeded.TokenAfterRecovery, seeds, "invariant 2"},
	{seeded.MemoryNotInSnapshot, seeds, "invariant 10"},
	{seeded.MemoryTooShort, seeds, "invariant 7"},
	{seeded.CancelForgotten, seeds, "invariant 7"},
	{seeded.UnattachedGranted, seeds, "invariant 8"},
	{seeded.LostLeadershipFails, errorTable, "TestWhatAnError"},
	{seeded.DirectoryNotSynced, grouping("PowerCuts", "-power.cuts=20"), "step "},
	{seeded.DamageTakenForEnd, grouping("ALogThatIsDamagedInTheMiddleIsRefused"), "the log is opened"},
	{seeded.SeamLeftOut, grouping("ASnapshotOverAConflictingTail"), "TestASnapshotOverAConflictingTail"},
	{seeded.UnknownKeyTrusted, layer{"tickets", tickets, []string{"-test.run=^TestRefusals$"}, time.Minute}, "TestRefusals"},
	{seeded.ActivityBeforeLock, storing("SessionThatConnectedWhileARaiseWaited"), "TestSessionThatConnectedWhileARaiseWaited"},
	{seeded.NullStartGone, storing("StartThatCannotBeSeenCountsAsAlive"), "TestStartThatCannotBeSeenCountsAsAlive"},
	{seeded.JoinsForShare, storing("Conformance"), "TestConformance"},
	{seeded.TakeoverWithoutWait, storing("SessionThatDoesNotEnd"), "TestSessionThatDoesNotEnd"},
	{seeded.FloorNotDurable, storing("CrashRightAfterARaise"), "TestCrashRightAfterARaise"},
	{seeded.FloorNotCompared, storing("Conformance"), "stale_token"},
	{seeded.PreparedIgnored, storing("PreparedTransactionOfTheOldHolder"), "TestPreparedTransactionOfTheOldHolder"},
	{seeded.WarningIsClean, storing("CancelledWaitForASynchronousStandby"), "TestCancelledWaitForASynchronousStandby"},
	{seeded.OlderNotTold, contacts, "its gate has not said so"},
	{seeded.FloorAboveOnly, conformance, "equal_token_joins"},
	{seeded.FloorGoesDown, conformance, "stale_token_is_refused"},
	{seeded.FloorBeforeEnd, timeouts, "TestTakeoverThatTimesOut"},
	{seeded.FloorBeforeEnd, takeovers, "the answer is not: takeover timed out"},
	{seeded.OldBindingKept, conformance, "invariant 4"},
	{seeded.OldBindingKept, contacts, "invariant 4"},
	{seeded.OldBindingKept, takeovers, "the floor of r0 is 2, want 1"},
	{seeded.OtherClusterTaken, conformance, "another_cluster"},
}
