package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// Run one piece of work under a lock. The context ends before anybody else can be granted it.
func ExampleClient_Do() {
	s := clienttest.New() // in place of a coordinator
	defer s.Close()
	c, err := s.Dial(client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	err = c.Do(context.Background(), "ledger/eu", func(ctx context.Context, l *client.Lease) error {
		fmt.Println("holding", l.Resource(), "with token", l.Token())
		return ctx.Err()
	})
	if errors.Is(err, client.ErrLost) {
		fmt.Println("the lock was lost: look at what was done")
	}
	// Output: holding ledger/eu with token 1
}

// Hold a lock for as long as a process is the leader.
func ExampleClient_Acquire() {
	s := clienttest.New()
	defer s.Close()
	c, err := s.Dial(client.Config{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	l, err := c.Acquire(ctx, "scheduler/leader")
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-l.Done():
		fmt.Println("no longer the leader:", l.Err())
	case <-time.After(10 * time.Millisecond): // the work
	}
	if err := l.Release(ctx); err != nil {
		log.Print(err) // the lease runs out by itself
	}
	fmt.Println(l.State())
	// Output: released
}

// Take a lock only if it is free.
func ExampleClient_TryAcquire() {
	s := clienttest.New()
	defer s.Close()
	for _, name := range []string{"first", "second"} {
		c, err := s.Dial(client.Config{ClientID: name})
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		_, err = c.TryAcquire(context.Background(), "nightly/report")
		e, refused := errors.AsType[*client.Error](err)
		switch {
		case errors.Is(err, client.ErrHeld) && refused:
			fmt.Println(name, "finds it held by", e.Holder.GetClientId())
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(name, "has it")
		}
	}
	// Output:
	// first has it
	// second finds it held by first
}
