package group

import "time"

// Observer is told what the group measures; the API layer turns it into metrics. Its methods are called from
// several goroutines and must not block.
type Observer interface {
	// EntryCommitted reports an entry that this node proposed as leader: how many commands and bytes it
	// carried and how long it took from its stamp to its result.
	EntryCommitted(commands, bytes int, took time.Duration)
	// EntryFailed reports an entry without a result.
	EntryFailed(kind Kind)
	// LeaderChanged reports that the leader known to this node is now leader ("" for none). When one is
	// known again, without says how long there was none; for self it ends when this node serves.
	LeaderChanged(leader string, self bool, without time.Duration)
	// CommandRefused reports a command that was turned away before it was proposed.
	CommandRefused(kind Kind)
}

type nobody struct{}

func (nobody) EntryCommitted(int, int, time.Duration)    {}
func (nobody) EntryFailed(Kind)                          {}
func (nobody) LeaderChanged(string, bool, time.Duration) {}
func (nobody) CommandRefused(Kind)                       {}
