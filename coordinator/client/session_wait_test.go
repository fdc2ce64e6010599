package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func release() *lockpb.Call {
	return &lockpb.Call{Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: "l"}}}
}

// Callers are reminded of their deadlines by one timer of their session, each at the right moment.
func TestEachCallEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t.Context(), "n1", nil)
		began := time.Now()
		for _, d := range []time.Duration{5 * time.Second, time.Second, 3 * time.Second, 3 * time.Second} {
			go func() {
				ctx := within(context.Background(), d, noAnswer)
				defer ctx.cancel()
				_, sent, err := s.do(ctx, release())
				if took := time.Since(began); took != d || sent || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a call with %v ended after %v, sent %v, with %v", d, took, sent, err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.calls) != 0 || !s.first.IsZero() {
			t.Errorf("%d calls are left, and the alarm rings at %v", len(s.calls), s.first)
		}
	})
}

// The end of the client ends calls in progress, and one that begins in that moment.
func TestCallsEndWithTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, stop := context.WithCancelCause(context.Background())
		s := newSession(root, "n1", nil)
		defer context.AfterFunc(root, s.remindAll)()
		ended := 0
		call := func() {
			ctx := &bound{parent: context.Background(), closing: root}
			defer ctx.cancel()
			if _, _, err := s.do(ctx, release()); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(ctx), ErrClosed) {
				t.Errorf("got %v, for %v", err, context.Cause(ctx))
			}
			ended++
		}
		go call()
		synctest.Wait()
		if ended != 0 {
			t.Fatal("it ended by itself")
		}
		stop(ErrClosed)
		synctest.Wait()
		call()
		if ended != 2 {
			t.Errorf("%d calls ended", ended)
		}
	})
}

// A reminder does not pass for an answer, nor does it get in its way.
func TestReminderAndAnswer(t *testing.T) {
	s := newSession(t.Context(), "n1", nil)
	for range 3 { // what served one call serves the next
		c := queued(t, s)
		s.take()
		s.remindAll()
		s.remindAll()
		want := &lockpb.Answer{Id: c.id}
		s.deliver(&lockpb.SessionResponse{Answers: []*lockpb.Answer{want, {Id: c.id}}})
		if got, answered := s.await(t.Context(), c); got != want || !answered {
			t.Errorf("got %v, %v", got, answered)
		}
		s.spare.Put(c)
	}
}

// A node cannot answer what it was not asked yet.
func TestAnswerToAnUnsentCallIsDropped(t *testing.T) {
	s := newSession(t.Context(), "n1", nil)
	c := queued(t, s)
	s.deliver(&lockpb.SessionResponse{Answers: []*lockpb.Answer{{Id: c.id}}})
	if len(c.done) != 0 || s.calls[c.id] != c {
		t.Error("it was taken for an answer")
	}
	if s.take() == nil || !c.sent {
		t.Error("the call was not sent")
	}
}
