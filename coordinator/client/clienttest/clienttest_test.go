package clienttest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// The fake's queue: waiters are granted in the order in which they came; the one that gave up is passed over.
func TestQueueKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New()
		defer s.Close()
		dial := func(name string) *client.Client {
			c, err := s.Dial(client.Config{ClientID: name})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		ctx, giveUp := context.WithCancel(t.Context())
		for _, name := range []string{"a", "b", "c", "d"} {
			c := dial(name)
			defer c.Close()
			waitFor := t.Context()
			if name == "b" {
				waitFor = ctx
			}
			go func() {
				l, err := c.Acquire(waitFor, "x")
				if err != nil {
					return
				}
				time.Sleep(10 * time.Second)
				_ = l.Release(t.Context())
			}()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if n := s.Waiting("x"); n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
		giveUp()
		time.Sleep(time.Minute)
		var order []string
		var tokens []uint64
		for _, g := range s.Grants() {
			order, tokens = append(order, g.Client), append(tokens, uint64(g.Token))
		}
		if want := []string{"a", "c", "d"}; !slices.Equal(order, want) || !slices.IsSorted(tokens) {
			t.Errorf("granted to %v with tokens %v, want %v with growing ones", order, tokens, want)
		}
	})
}
