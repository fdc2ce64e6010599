package api

import (
	"context"
	"errors"
	"sync"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// oversight knows the streams that are open, which may be so for days. When other rules or tokens count, it ends those that
// would not be let in any more. Calls in a session ask for their rights one by one, as all others do.
type oversight struct {
	mu      sync.Mutex
	streams map[*overseen]struct{} // bounded by the calls of the node
}

type overseen struct {
	ctx    context.Context
	method string
	end    context.CancelCauseFunc
}

// oversee has the context of a stream end when its caller's right to it does, with the refusal for its cause.
func (s *Server) oversee(ctx context.Context, method string) (_ context.Context, overlook func()) {
	if s.config.Security.Rules == nil && s.config.Security.Tokens == nil {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	o := &overseen{ctx, method, end}
	s.oversight.mu.Lock()
	s.oversight.streams[o] = struct{}{}
	s.oversight.mu.Unlock()
	s.review(o) // the rules may have changed since it was let in
	return ctx, func() {
		s.oversight.mu.Lock()
		delete(s.oversight.streams, o)
		s.oversight.mu.Unlock()
		end(nil)
	}
}

// review ends a stream that would not be let in any more.
func (s *Server) review(o *overseen) {
	c, known := callerOf(o.ctx)
	if !known {
		return
	}
	if c.token != "" && c.fault == nil {
		if id, ok := s.config.Security.Tokens.Whose(c.token); !ok || id != c.identity {
			o.end(refuse(lockpb.Reason_UNAUTHENTICATED, "the token of this call counts no more"))
			return
		}
	}
	if refused := s.demand(o.ctx, c, o.method); refused != nil {
		o.end(refused)
	}
}

// runOversight looks at all open streams whenever other rules or tokens count, until ctx is done.
func (s *Server) runOversight(ctx context.Context) {
	rules, tokens := s.config.Security.Rules, s.config.Security.Tokens
	for {
		otherRules, otherTokens := rules.Changed(), tokens.Changed()
		for _, o := range s.oversight.all() {
			s.review(o)
		}
		select {
		case <-otherRules:
		case <-otherTokens:
		case <-ctx.Done():
			return
		}
	}
}

func (v *oversight) all() []*overseen {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]*overseen, 0, len(v.streams))
	for o := range v.streams {
		all = append(all, o)
	}
	return all
}

// revoked is why a stream has ended: that its caller may not have it any more, or else what it says itself.
func revoked(ctx context.Context, err error) error {
	var why, last *refusal
	if err == nil || !errors.As(context.Cause(ctx), &why) {
		return err
	}
	if errors.As(err, &last) && last.maybe() {
		return why.mayBeApplied()
	}
	return why
}
