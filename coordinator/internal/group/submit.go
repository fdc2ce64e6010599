package group

import (
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Submission is a command whose caller does not block on it: Propose for those who have many at a time. The caller
// makes one with Command and Caller set, and must not copy or change it afterwards.
type Submission struct {
	Command lock.Command
	Caller  Caller

	proposal proposal
}

// Caller is told what became of a Submission.
type Caller interface {
	// Answered is called once, with what Propose would have returned, unless the submission was withdrawn before. It
	// runs on the goroutine that answers everybody: it must not block, nor call the group.
	Answered(outcome Outcome, err error)
}

// Submit gets commands into the log, as Propose does each, and returns at once. Commands of one client keep their
// order. What is refused is answered before Submit returns.
func (g *Group) Submit(submissions ...*Submission) {
	g.replica.view(func(m *lock.Machine) {
		for _, s := range submissions {
			s.proposal.prepare(s.Command, m)
			s.proposal.caller = s.Caller
			s.proposal.group = g
		}
	})
	refused, reason := g.queue.pushAll(submissions)
	for _, s := range refused {
		g.config.Observer.CommandRefused(reason.Kind)
		s.proposal.finish(answer{err: reason})
	}
}

// Withdraw takes a submission back. It reports false if that is no longer possible: it is in an entry, or answered, and
// Answered has been called or will be.
func (g *Group) Withdraw(s *Submission) bool { return g.queue.withdraw(&s.proposal) }

// finish tells the caller of a proposal. It never blocks.
func (p *proposal) finish(a answer) {
	switch {
	case p.caller == nil:
		p.done <- a // capacity 1, written once
	case a.err != nil:
		p.caller.Answered(Outcome{}, p.group.hint(a.err))
	default:
		p.caller.Answered(a.outcome, nil)
	}
}

// pushAll queues commands in their order. It returns those that it refuses, and why.
func (q *queue) pushAll(submissions []*Submission) (refused []*Submission, reason *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range submissions {
		if err := q.pushLocked(&s.proposal); err != nil {
			refused, reason = append(refused, s), err
		}
	}
	return refused, reason
}
