// Package seeded brings bugs back, to prove that they would be found. In a build with the tag seededbugs the environment
// variable LYCHGATE_BUG names one; in every other build Is is constantly false, and the compiler leaves out what it guards.
// make seeded-bugs plants each in turn and runs the layer that must find it.
package seeded

// Bug names one.
type Bug string

// The bugs: what the code does instead of what it should.
const (
	// Of the state machine.
	TokenAfterRecovery    Bug = "token-reused-after-restore"      // a recovery does not begin another incarnation
	TokenPerEntry         Bug = "token-counted-per-command"       // two grants of one entry have one token
	TokenForJoin          Bug = "new-token-for-a-join"            // a shared lease that joins a period has a token of its own
	ExpiryUnconditional   Bug = "expiry-unconditional"            // a lease expires as if it had never been renewed
	DeadlinesAtElection   Bug = "ttl-reset-at-each-election"      // a new leader gives every lease its whole TTL
	MemoryNotInSnapshot   Bug = "deduplication-not-in-snapshot"   // requests that are over are left out
	MemoryWithoutClient   Bug = "deduplication-without-client"    // requests are known by their id alone
	MemoryTooShort        Bug = "deduplication-evicted-too-early" // a request that is over is forgotten at once
	DeadLeaseReported     Bug = "dead-lease-from-deduplication"   // a retry is told of a lease that has ended
	CancelKeepsWaiter     Bug = "waiter-not-removed-on-cancel"    // it is answered and goes on waiting
	CancelForgotten       Bug = "early-cancel-forgotten"          // a cancel that overtakes its acquire leaves no record
	UnattachedGranted     Bug = "waiter-granted-while-unattached" // whether its caller is there is not looked at
	OverdueGranted        Bug = "waiter-granted-after-its-wait"   // whether its wait is over is not looked at
	StaleDetach           Bug = "stale-detach-honoured"           // the call's number is not looked at
	LastInFirstOut        Bug = "last-in-first-out"               // the last of the queue is granted first
	SharedPassesExclusive Bug = "shared-past-waiting-exclusive"   // a shared newcomer does not look at the queue
	HeadStartIgnored      Bug = "election-reverses-the-queue"     // nothing is kept for the head after an election
	ReleaseWithoutMatch   Bug = "release-without-lease-match"     // a lease id that is not known ends the identity's first lease
	ReleaseByAnother      Bug = "release-by-another-identity"     // who asks is not looked at
	DelayIgnored          Bug = "lock-delay-ignored"              // a closed resource is granted
	DeadlockUnseen        Bug = "deadlock-unseen"                 // no circle is looked for
	SnapshotInMapOrder    Bug = "map-order-in-snapshot"           // the clients come in the order of a map
	TiesByHistory         Bug = "ties-of-a-deadline-heap"         // equal deadlines come in the order in which they were set
	FoldedByIdleness      Bug = "floors-folded-by-idleness"       // the smallest live token does not look at leases
	// Around it.
	ClockOverElection   Bug = "ttl-not-extended-over-election"  // a new leader's clock counts the time without a leader
	ClockCatchesUp      Bug = "lease-time-catches-up"           // what the limit cut off is made up for after a stall
	LostLeadershipFails Bug = "leadership-lost-reported-failed" // raft.ErrLeadershipLost is taken for "not applied"
	DirectoryNotSynced  Bug = "snapshot-without-directory-sync" // nor are the folders of the stores
	DamageTakenForEnd   Bug = "damage-taken-for-the-end"        // what stands behind a broken frame of the log is not looked at
	SeamLeftOut         Bug = "log-kept-under-a-snapshot"       // the cure of hashicorp/raft issue 697 is left out
	UnknownKeyTrusted   Bug = "signature-of-unknown-key"        // is not checked
	OlderNotTold        Bug = "older-sessions-not-told"         // a gate does not tell its sessions that they are fenced
	// Of the store in PostgreSQL.
	ActivityBeforeLock  Bug = "activity-read-before-the-lock" // the list of sessions is the one from before the wait
	NullStartGone       Bug = "null-start-taken-for-gone"     // a session whose start cannot be seen is not waited for
	JoinsForShare       Bug = "joins-under-for-share"         // they and raises block each other
	TakeoverWithoutWait Bug = "takeover-without-wait"         // the floor goes up while old sessions live
	FloorNotDurable     Bug = "floor-not-durable"             // its commit does not wait for the disk
	FloorNotCompared    Bug = "floor-not-compared"            // stale tokens join
	PreparedIgnored     Bug = "prepared-transaction-ignored"  // a takeover does not look for them
	WarningIsClean      Bug = "warning-taken-for-clean"       // an answer with a warning counts as accepted
	// Of the store in memory.
	FloorAboveOnly    Bug = "floor-compared-with-less"    // a token equal to the floor is refused: > for >=
	FloorGoesDown     Bug = "floor-follows-the-last"      // a floor is set to the last token, stale ones are let in
	FloorBeforeEnd    Bug = "floor-raised-before-the-end" // a takeover does not wait for the old sessions to be gone
	OldBindingKept    Bug = "old-sessions-not-ended"      // a takeover ends nobody
	OtherClusterTaken Bug = "another-clusters-token"      // which cluster issued a token is not looked at
)
