package group

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A node whose stores are empty is blank. It cannot know by itself whether the cluster is still to be created or has run
// for years and this node lost its disk; in the second case its vote could undo what was acknowledged. So it asks the
// other members before it takes part: DESIGN.md, "A node without memory".

// Peers asks the other members what they remember.
type Peers interface {
	// Ask returns what that member's Group.Answer returns. It ends with ctx at the latest. An answer that came from any
	// other node is an error. ErrNotMember, wrapped or not, passes through.
	Ask(ctx context.Context, member string, q Question) (Answer, error)
}

// Question is what a node without memory asks each other member.
type Question struct {
	From  string // the node that asks
	Blank bool   // its stores are empty; false: it is catching up
}

// Answer is what a member says of itself.
type Answer struct {
	Blank bool  // its stores are empty, and it takes part in no cluster
	Proof Proof // zero unless it leads
}

// Proof shows that the cluster lives: the member led in Term, and a majority had Index, the last index of its state,
// after the question came. Whoever asked was no part of that majority, because it takes no messages before it has one.
type Proof struct {
	Incarnation uint32 // of the cluster
	Term, Index uint64
}

// after reports whether a proof is the newer one: of a later life of the cluster, or of a later term.
func (p Proof) after(other Proof) bool {
	return cmp.Or(cmp.Compare(p.Incarnation, other.Incarnation), cmp.Compare(p.Term, other.Term)) > 0
}

// memory is whether this node's stores held anything when it started.
type memory int32

const (
	unopened memory = iota // not looked yet
	blank
	remembers // or it has decided what it begins with
)

// sighting is what this process has learned of another member.
type sighting struct {
	blank    bool // it was blank at some moment since this process started
	told     bool // it has answered a question, so it knows that this node was blank
	settled  bool // its last answer was that it is not blank
	answered Proof
}

// sightings is what this process has learned of the others.
type sightings struct {
	news chan struct{} // capacity 1: a member was seen blank

	mu sync.Mutex
	by map[string]sighting
}

func newSightings(config Config) *sightings {
	s := &sightings{news: make(chan struct{}, 1), by: make(map[string]sighting)}
	for _, m := range config.Members {
		if m.ID != config.Node {
			s.by[m.ID] = sighting{}
		}
	}
	return s
}

// asked records that a member asked this node.
func (s *sightings) asked(q Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, member := s.by[q.From]
	if !member || !q.Blank || seen.blank {
		return
	}
	seen.blank = true
	s.by[q.From] = seen
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// answered records a member's answer.
func (s *sightings) answered(member string, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.by[member]
	seen.told = true
	seen.blank = seen.blank || a.Blank
	seen.settled = !a.Blank
	seen.answered = a.Proof
	s.by[member] = seen
}

func (s *sightings) now() map[string]sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.by)
}

// beginning is how a node begins.
type beginning int

const (
	undecided beginning = iota
	resumes             // with what its stores hold
	creates             // with the configured members: the cluster is new
	rejoins             // with nothing, and without a vote until it has caught up
)

func (b beginning) String() string {
	switch b {
	case undecided:
		return "undecided"
	case resumes:
		return "resumes"
	case creates:
		return "creates"
	case rejoins:
		return "rejoins"
	}
	return "unknown"
}

// decide says how a node without memory begins, from what it has seen of the others; isBlank is false if it was catching
// up when it stopped. A proof is for rejoins.
func decide(isBlank bool, seen map[string]sighting) (beginning, Proof) {
	if isBlank && len(unseen(seen)) == 0 {
		return creates, Proof{}
	}
	var best Proof
	for _, s := range seen {
		if s.answered.after(best) {
			best = s.answered
		}
	}
	if best != (Proof{}) {
		return rejoins, best
	}
	return undecided, Proof{}
}

// unseen are the members that keep a blank node from creating the cluster: not seen blank, or not knowing that this node
// was. If they did not know, they would take this one for the older cluster later, and none would have a majority.
func unseen(seen map[string]sighting) (members []string) {
	for member, s := range seen {
		if !s.blank || !s.told {
			members = append(members, member)
		}
	}
	slices.Sort(members)
	return members
}

// remembering are the members that have something that they had not got since this process started.
func remembering(seen map[string]sighting) (members []string) {
	for member, s := range seen {
		if s.settled && !s.blank {
			members = append(members, member)
		}
	}
	slices.Sort(members)
	return members
}

// Answer is this node's answer to another member's question. It does not wait for a leader; where this node is the leader, it
// waits a second at most for a majority.
func (g *Group) Answer(ctx context.Context, q Question) (Answer, error) {
	if q.From == g.config.Node {
		return Answer{}, errors.New("group: the question is from a node of this one's own name")
	}
	if !g.isMember(q.From) {
		return Answer{}, ErrNotMember
	}
	g.sightings.asked(q)
	switch memory(g.memory.Load()) {
	case unopened:
		return Answer{}, g.hint(&Error{Kind: NotLeader, Err: errors.New("the stores are not open yet")})
	case blank:
		return Answer{Blank: true}, nil
	case remembers:
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	return Answer{Proof: g.prove(ctx)}, nil
}

// prove is zero unless this node leads and a majority follows.
func (g *Group) prove(ctx context.Context) Proof {
	node := g.raft.Load()
	if node == nil {
		return Proof{}
	}
	term := node.CurrentTerm()
	var incarnation uint32
	outcome, err := g.Read(ctx, func(m *lock.Machine) { incarnation = m.Info().Incarnation })
	if err != nil || node.CurrentTerm() != term {
		return Proof{}
	}
	return Proof{Incarnation: incarnation, Term: term, Index: outcome.Index}
}

const (
	proofTimeout = time.Second
	askTimeout   = 2 * time.Second // more than a proof takes
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	sayAfter     = time.Second // a start of all members together needs no line in the log
	sayEvery     = 5 * time.Second
)

// findBeginning asks until it is clear how this node begins, or ctx ends, which leaves it undecided.
func (g *Group) findBeginning(ctx context.Context, isBlank bool) (beginning, Proof) {
	pause, say := firstPause, g.instant()+sayAfter
	warned := false
	for {
		failed := g.askAll(ctx, isBlank)
		seen := g.sightings.now()
		begin, proof := decide(isBlank, seen)
		if lost := !isBlank || begin == rejoins || len(remembering(seen)) > 0; lost && begin != creates && !warned {
			warned = true
			g.config.Logger.Warn("this node has lost what it knew: it catches up from the others, and does not vote until then")
		}
		if begin != undecided || ctx.Err() != nil {
			return begin, proof
		}
		g.explain(isBlank, seen)
		if errors.Is(failed, ErrNotMember) {
			g.pend(notJoined)
		}
		if g.instant() >= say {
			say = g.instant() + sayEvery
			g.config.Logger.Info("not taking part yet", "reason", g.reasons.origin.String(), "error", failed)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, longestPause)
		case <-g.sightings.news:
			pause = firstPause
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// askAll asks the other members at once, and returns when all have answered or had their time, with why some did not.
func (g *Group) askAll(ctx context.Context, isBlank bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asking sync.WaitGroup
	failed := make([]error, len(g.config.Members))
	for i, m := range g.config.Members {
		if m.ID == g.config.Node {
			continue
		}
		asking.Go(func() {
			answer, err := g.config.Peers.Ask(ctx, m.ID, Question{From: g.config.Node, Blank: isBlank})
			if err != nil {
				failed[i] = err
				return
			}
			if theirs := lifeOf(answer.Proof.Incarnation); answer.Proof != (Proof{}) && !theirs.fits(g.life()) {
				g.outlived(theirs, m.ID)
				answer.Proof = Proof{} // of another cluster, as it were
			}
			g.sightings.answered(m.ID, answer)
		})
	}
	asking.Wait()
	return errors.Join(failed...)
}

const catchingUp = "catching up: this node's folder was empty"

// explain keeps the reason why this node does not take part for Status.
func (g *Group) explain(isBlank bool, seen map[string]sighting) {
	if have := remembering(seen); len(have) > 0 || !isBlank {
		g.pend(catchingUp + "; it waits for a leader that a majority of the nodes follows without this one. Start the others that " +
			"have their data")
		return
	}
	g.pend("the cluster is to be created, and all members must be up for that once; start " + strings.Join(unseen(seen), ", "))
}

// pend sets why this node does not take part, or not with a vote; empty: it does.
func (g *Group) pend(reason string) { g.reasons.origin.say(reason) }
