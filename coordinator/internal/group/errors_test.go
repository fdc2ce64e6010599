package group

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// The library's own words for some of these are misleading; DESIGN.md has the list.
func TestWhatAnErrorOfTheLibraryMeans(t *testing.T) {
	for _, test := range []struct {
		err   error
		kind  Kind
		maybe bool
	}{
		{raft.ErrNotLeader, NotLeader, false},
		{raft.ErrLeadershipTransferInProgress, NotLeader, false},
		{raft.ErrAbortedByRestore, NotLeader, false},
		{raft.ErrEnqueueTimeout, Overloaded, false},
		{errEncoding, Malformed, false},
		{raft.ErrLeadershipLost, Unknown, true},
		{raft.ErrRaftShutdown, Unknown, true},
		{errors.New("write log.db: no space left on device"), Unknown, true},
		{errNoResponse, Unknown, true},
	} {
		for _, err := range []error{test.err, fmt.Errorf("wrapped: %w", test.err)} {
			e := &Error{Kind: classify(err), Err: err}
			if e.Kind != test.kind || e.MaybeApplied() != test.maybe {
				t.Errorf("%q means %q, maybe applied %t; want %q, %t", err, e.Kind, e.MaybeApplied(), test.kind, test.maybe)
			}
			if !errors.Is(e, test.err) {
				t.Errorf("%q does not wrap its cause", e)
			}
		}
	}
}

func TestOnlyUnknownMayBeApplied(t *testing.T) {
	for k := NotLeader; k <= Unknown; k++ {
		if got, want := (&Error{Kind: k}).MaybeApplied(), k == Unknown; got != want {
			t.Errorf("%q: maybe applied is %t, want %t", k, got, want)
		}
	}
}
