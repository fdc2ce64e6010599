package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testConfig(t *testing.T) Config {
	return Config{Path: filepath.Join(t.TempDir(), "audit.jsonl"), MaxBytes: 1 << 20, Keep: 3, Node: "n1"}
}

// grantAt is an entry that grants one lease.
func grantAt(index uint64) group.Applied {
	g := lock.Grant{
		Resource: "ledger/eu", Lease: lease.ID{9, byte(index)}, Token: lease.Token(index), Mode: lease.Exclusive,
		Identity: "anonymous", Client: "A", Request: lease.RequestID(fmt.Sprint(index)),
	}
	return group.Applied{
		Index: index, Term: 1, Now: lock.LeaseTime(index),
		Commands: []lock.Command{lock.Acquire{}}, Results: []lock.Result{lock.Granted{Grant: g}},
		Events: []lock.Event{lock.LeaseGranted{Grant: g}},
	}
}

func tickAt(index uint64) group.Applied {
	return group.Applied{Index: index, Commands: []lock.Command{lock.Tick{}}, Results: []lock.Result{lock.Done{}}}
}

// run writes what feed offers, and stops.
func run(t *testing.T, config Config, feed func(l *Log)) {
	t.Helper()
	l, err := New(config)
	check(t, err)
	feed(l)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	check(t, l.Run(ctx))
}

// told reads a file back as "from-index decision cause".
func told(t *testing.T, path string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	for text := range strings.Lines(string(text)) {
		var l line
		check(t, json.Unmarshal([]byte(text), &l))
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d-%d %s %s", l.From, l.Index, l.Decision, l.Cause)))
	}
	return lines
}

func wantTold(t *testing.T, path string, want ...string) {
	t.Helper()
	if got := told(t, path); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestLinesCoverEveryIndex(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) {
		l.Applied(grantAt(3)) // 1 and 2 were the library's own
		l.Applied(tickAt(4))
		l.Applied(tickAt(5))
		two := grantAt(6)
		two.Events = append(two.Events, lock.LeaseEnded{Cause: lock.EndExpired})
		l.Applied(two)
		l.Applied(tickAt(7))
	})
	wantTold(t, config.Path, "1-3 granted", "4-6 granted", "6-6 ended expired", "7-7 none")
}

// After a restart the log is applied again from the last snapshot on; nothing is written twice.
func TestReplayIsNotWrittenTwice(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) {
		l.Applied(grantAt(1))
		l.Applied(grantAt(2))
	})
	run(t, config, func(l *Log) {
		l.Restored(1)
		l.Applied(replayed(grantAt(2)))
		l.Applied(grantAt(3))
	})
	wantTold(t, config.Path, "1-1 granted", "2-2 granted", "3-3 granted")
}

func replayed(a group.Applied) group.Applied {
	a.Replayed = true
	return a
}

// The node's data was removed and the audit file was not: what the new log decides is written, not taken for a replay.
func TestLogThatBeganAnewIsWritten(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) {
		l.Applied(grantAt(2))
		l.Applied(grantAt(9))
	})
	run(t, config, func(l *Log) {
		l.Applied(grantAt(3))
		l.Applied(grantAt(4))
	})
	run(t, config, func(l *Log) {
		l.Applied(replayed(grantAt(3)))
		l.Applied(replayed(grantAt(4)))
		l.Applied(grantAt(5))
	})
	wantTold(t, config.Path, "1-2 granted", "3-9 granted",
		"2-2 restarted the node's log began anew", "3-3 granted", "4-4 granted", "5-5 granted")
}

func TestSnapshotThatSkipsIsSaid(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) { l.Applied(grantAt(1)) })
	run(t, config, func(l *Log) {
		l.Restored(50)
		l.Applied(tickAt(51))
		l.Applied(grantAt(52))
	})
	wantTold(t, config.Path, "1-1 granted", "2-50 lost the state was restored from a snapshot", "51-52 granted")
}

// A crash in the middle of a write leaves half a line, or half of an entry's lines. They are cut off and written again.
func TestTornTailIsCutOff(t *testing.T) {
	for name, torn := range map[string]string{
		"half a line":    `{"from":3,"index":3,"deci`,
		"half an entry":  `{"from":3,"index":3,"decision":"granted","more":true}` + "\n",
		"both":           `{"from":3,"index":3,"decision":"granted","more":true}` + "\n" + `{"from":3`,
		"not our line":   "hello\n",
		"a cut sequence": "\xe2\x82",
	} {
		config := testConfig(t)
		run(t, config, func(l *Log) { l.Applied(grantAt(2)) })
		f, err := os.OpenFile(config.Path, os.O_APPEND|os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteString(torn)
		check(t, err)
		check(t, f.Close())
		run(t, config, func(l *Log) { l.Applied(grantAt(3)) })
		t.Log(name)
		wantTold(t, config.Path, "1-2 granted", "3-3 granted")
	}
}

// While the disk refuses, decisions are dropped and the replica goes on; when it takes again, what is missing is said.
func TestFullDisk(t *testing.T) {
	config := testConfig(t)
	dropped := 0
	config.Dropped = func(entries int) { dropped += entries }
	l, err := New(config)
	check(t, err)
	out, err := openFile(l.config)
	check(t, err)
	w := &writer{config: l.config, out: out, covered: out.last}
	take := func(a group.Applied) {
		l.Applied(a)
		w.take(<-l.queue)
		w.flush()
	}
	take(grantAt(1))
	good := out.f
	out.f, err = os.Open(config.Path) // for reading only: writes fail
	check(t, err)
	take(grantAt(2))
	take(tickAt(3))
	take(grantAt(4))
	for i := uint64(5); i <= 7; i++ { // one write for all
		l.Applied(grantAt(i))
		w.take(<-l.queue)
	}
	w.flush()
	_ = out.f.Close()
	out.f = good
	take(tickAt(8))
	take(grantAt(9))
	w.finish()
	wantTold(t, config.Path, "1-1 granted", "2-7 lost the lines were not written in time", "8-9 granted")
	if dropped != 5 { // 3 decided nothing
		t.Errorf("%d entries were counted, want 5", dropped)
	}
}

// More comes than the buffer holds: the replica is not held up, and the gap is said.
func TestFullBuffer(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) {
		for i := uint64(1); i <= buffered+5; i++ {
			l.Applied(grantAt(i))
		}
		for range 10 {
			<-l.queue // as if they had been written, to make room; the writer never sees them
		}
		l.Applied(grantAt(buffered + 6))
	})
	lines := told(t, config.Path)
	last := lines[len(lines)-2:]
	want := []string{
		fmt.Sprintf("%d-%d lost the lines were not written in time", buffered+1, buffered+5),
		fmt.Sprintf("%d-%d granted", buffered+6, buffered+6),
	}
	if strings.Join(last, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", last, want)
	}
}

// Large entries wait in smaller numbers.
func TestDecisionsThatWaitAreBounded(t *testing.T) {
	const each = bufferedDecisions / 4
	config := testConfig(t)
	dropped := 0
	config.Dropped = func(n int) { dropped += n }
	run(t, config, func(l *Log) {
		for i := uint64(1); i <= 6; i++ {
			a := grantAt(i)
			a.Events = slices.Repeat(a.Events, each)
			if i == 6 {
				a = grantAt(i)
			}
			l.Applied(a)
		}
		if waiting := l.waiting.Load(); waiting > bufferedDecisions {
			t.Errorf("%d decisions wait, more than %d", waiting, bufferedDecisions)
		}
		for len(l.queue) > 0 {
			l.waiting.Add(-(<-l.queue).decisions())
		}
		if waiting := l.waiting.Load(); waiting != 0 {
			t.Errorf("%d decisions wait in an empty queue", waiting)
		}
		huge := grantAt(7)
		huge.Events = slices.Repeat(huge.Events, bufferedDecisions+1)
		l.Applied(huge)
		if len(l.queue) != 1 {
			t.Error("an entry that is larger than the bound never waits")
		}
		<-l.queue // so many lines take long to write
		l.waiting.Store(0)
	})
	if dropped != 2 {
		t.Errorf("%d entries were dropped, want the fifth and the sixth", dropped)
	}
}

// What gives no line is not kept, and what is kept gives the same lines.
func TestWhatSaysNothingIsNotKept(t *testing.T) {
	commands := []lock.Command{
		lock.Renew{},
		lock.RenewMany{Leases: make([]lease.ID, 2)},
		lock.RenewMany{Leases: make([]lease.ID, 2)},
		lock.Acquire{Resource: "r"},
		lock.Acquire{Resource: "s"},
		lock.Release{},
		lock.Cancel{},
		lock.Cancel{},
	}
	results := []lock.Result{
		lock.Renewed{},
		lock.RenewedMany{Renewals: make([]lock.Renewal, 2), Grants: make([]lock.Grant, 2)},
		lock.RenewedMany{Renewals: []lock.Renewal{{}, {Refused: &lock.Refused{Reason: lock.ReasonLeaseEnded}}}, Grants: make([]lock.Grant, 2)},
		lock.Granted{},
		lock.Refused{Reason: lock.ReasonHeld},
		lock.Released{},
		lock.Cancelled{Was: lock.RequestUnknown},
		lock.Cancelled{Was: lock.RequestHeld},
	}
	for _, renewals := range []bool{false, true} {
		config := testConfig(t)
		config.Renewals = renewals
		l, err := New(config)
		check(t, err)
		whole := &group.Applied{Index: 1, Commands: commands, Results: results}
		kept := &group.Applied{Index: 1}
		kept.Commands, kept.Results = l.worthKeeping(commands, results)
		without := func(lines []line) []line {
			for i := range lines {
				lines[i].Time = time.Time{}
			}
			return lines
		}
		got, want := without(linesOf(nil, kept, config)), without(linesOf(nil, whole, config))
		if !reflect.DeepEqual(got, want) || len(want) == 0 {
			t.Errorf("renewals %v: got %v, want %v", renewals, got, want)
		}
		if !renewals && len(kept.Results) != 3 {
			t.Errorf("%d results are kept, want what was refused and the cancel of an unknown request", len(kept.Results))
		}
	}
}

func TestQuietRangesAreMarked(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) {
		for i := uint64(1); i <= quiet+1; i++ {
			l.Applied(tickAt(i))
		}
	})
	wantTold(t, config.Path, fmt.Sprintf("1-%d none", quiet), fmt.Sprintf("%d-%d none", quiet+1, quiet+1))
}

func TestRotation(t *testing.T) {
	config := testConfig(t)
	config.MaxBytes = 1000
	const entries = 60
	for i := uint64(1); i <= entries; i++ { // a restart for each, so that every line is a write of its own
		run(t, config, func(l *Log) { l.Applied(grantAt(i)) })
	}
	files, err := filepath.Glob(config.Path + "*")
	check(t, err)
	if len(files) != 1+config.Keep {
		t.Errorf("files %v, want one and %d old ones", files, config.Keep)
	}
	o, err := openFile(config)
	check(t, err)
	defer o.close()
	covered := uint64(0)
	paths := []string{}
	for _, old := range o.older() {
		paths = append(paths, old.path)
	}
	for _, path := range append(paths, config.Path) {
		for _, l := range told(t, path) {
			var from, index uint64
			_, err := fmt.Sscanf(l, "%d-%d", &from, &index)
			check(t, err)
			if covered != 0 && from != covered+1 {
				t.Errorf("%s: a gap before %s", path, l)
			}
			covered = index
		}
		if info, err := os.Stat(path); err != nil || info.Size() > config.MaxBytes {
			t.Errorf("%s: %v, %v", path, info.Size(), err)
		}
	}
	if covered != entries {
		t.Errorf("ends at %d, want %d", covered, entries)
	}
}

func TestEmptyFileAfterRotationKnowsWhereItStands(t *testing.T) {
	config := testConfig(t)
	run(t, config, func(l *Log) { l.Applied(grantAt(7)) })
	check(t, os.Rename(config.Path, config.Path+".7"))
	run(t, config, func(l *Log) {
		l.Applied(replayed(grantAt(7)))
		l.Applied(grantAt(8))
	})
	wantTold(t, config.Path, "8-8 granted")
}

func TestWhatIsADecision(t *testing.T) {
	refusedRelease := lock.Release{Identity: "anonymous", Lease: lease.ID{7}}
	a := &group.Applied{
		Index: 1,
		Commands: []lock.Command{
			lock.Acquire{Resource: "r", Client: "B", Request: "1", Mode: lease.Exclusive},
			refusedRelease,
			lock.Cancel{Client: "C", Request: "2"},
			lock.Cancel{Client: "D", Request: "3"},
			lock.Renew{},
			lock.Tick{},
			lock.Detach{},
		},
		Results: []lock.Result{
			lock.Waiting{Position: 1},
			lock.Refused{Reason: lock.ReasonLeaseEnded},
			lock.Cancelled{Was: lock.RequestUnknown},
			lock.Cancelled{Was: lock.RequestHeld},
			lock.Renewed{},
			lock.Done{},
			lock.Done{},
		},
		Events: []lock.Event{
			lock.WaitStarted{Mode: lease.Exclusive},
			lock.WaitDetached{},
			lock.WaitAttached{},
			lock.LeaseEnded{Cause: lock.EndCancelled},
			lock.WaitEnded{Cause: lock.WaitTimedOut},
			lock.ResourceBroken{Token: 5},
			lock.KeyAdded{Node: "n1"},
			lock.LeaderStarted{Node: "n1"},
		},
	}
	short := func(config Config) string {
		var words []string
		for _, l := range linesOf(nil, a, config) {
			words = append(words, strings.TrimSpace(l.Decision+" "+l.Cause))
		}
		return strings.Join(words, ", ")
	}
	want := "refused lease_ended, cancelled, queued, detached, attached, ended cancelled, wait_ended timed_out, broken, key_added, leader_started"
	if got := short(Config{}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := short(Config{Renewals: true}); !strings.Contains(got, "renewed") {
		t.Errorf("with renewals: %s", got)
	}
	for _, l := range linesOf(nil, a, Config{}) {
		text, err := json.Marshal(l)
		check(t, err)
		if strings.Contains(string(text), refusedRelease.Lease.String()) {
			t.Errorf("a line shows the lease id: %s", text)
		}
	}
}

// The replica is never held up, whatever the writer does.
func TestAppliedDoesNotBlock(t *testing.T) {
	l, err := New(testConfig(t))
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(1); i <= 3*buffered; i++ {
			l.Applied(tickAt(i))
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("Applied blocks")
	}
}

func TestFileThatCannotBeOpened(t *testing.T) {
	config := testConfig(t)
	config.Path = filepath.Join(config.Path, "in", "no", "directory")
	l, err := New(config)
	check(t, err)
	if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkApplied(b *testing.B) {
	l, err := New(Config{Path: filepath.Join(b.TempDir(), "a"), MaxBytes: 1 << 30, Keep: 1})
	if err != nil {
		b.Fatal(err)
	}
	a := grantAt(1)
	for b.Loop() {
		l.Applied(a)
		<-l.queue
	}
}

// A deadlock is written with its circle, whether a request was refused for it or a wait was ended; a renewal of many is
// written as what became of each.
func TestDecisionsOfVersionTwo(t *testing.T) {
	cycle := []lock.Owner{{Identity: "t:x", Name: "a"}, {Identity: "t:x", Name: "thread-2"}}
	a := &group.Applied{
		Index: 1,
		Commands: []lock.Command{
			lock.Acquire{Resource: "r", Client: "a", Request: "1", Mode: lease.Exclusive},
			lock.RenewMany{Identity: "t:x", Leases: []lease.ID{{1}, {2}}},
			lock.DeletePolicy{By: "admin", Target: lock.Target{Kind: lock.TargetTenant, Name: "t"}},
		},
		Results: []lock.Result{
			lock.Refused{Reason: lock.ReasonDeadlock, Cycle: cycle},
			lock.RenewedMany{Renewals: []lock.Renewal{{}, {Refused: &lock.Refused{Reason: lock.ReasonLeaseEnded}}}, Grants: make([]lock.Grant, 2)},
			lock.Refused{Reason: lock.ReasonNoSuchPolicy},
		},
		Events: []lock.Event{
			lock.WaitEnded{Cause: lock.WaitDeadlocked, Cycle: cycle},
			lock.PolicyChanged{By: "admin", Target: lock.Target{Kind: lock.TargetPrefix, Name: "db/"}},
			lock.KeyRetired{Node: "n1", KeyID: "k"},
			lock.KeyDropped{Node: "n1", KeyID: "k"},
			lock.MemberChanged{Member: lock.Member{ID: "n4"}, Gone: true},
			lock.VersionRaised{Version: 2},
			lock.Recovered{Incarnation: 7},
		},
	}
	var words []string
	for _, l := range linesOf(nil, a, Config{}) {
		words = append(words, strings.Join(strings.Fields(fmt.Sprintln(
			l.Decision, l.Cause, l.Cycle, l.Policy, l.Key, l.Member, l.Version)), " "))
	}
	want := []string{
		"refused deadlock [t:x/a t:x/thread-2] 0",
		"refused lease_ended [] 0",
		`refused no_such_policy [] tenant "t" 0`,
		"wait_ended deadlocked [t:x/a t:x/thread-2] 0",
		`policy_put [] prefix "db/" 0`,
		"key_retired [] k 0",
		"key_dropped [] k 0",
		"member_dropped [] n4 0",
		"version_raised [] 2",
		"recovered [] 7",
	}
	if !slices.Equal(words, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(words, "\n"), strings.Join(want, "\n"))
	}
}
