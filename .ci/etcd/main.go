// Command etcd is the peer that "lychgate bench lock" measures beside the coordinator: one durable etcd node, and the
// workers that take locks from a cluster of them through client/v3/concurrency. It is a module of its own so that the
// product does not depend on etcd.
//
//	etcd node PLAN     runs one node until it is killed, and prints "ready"
//	etcd worker        reads a plan on standard input, works it off, and prints a summary
//	etcd leader ADDR…  prints the address of the leader
//	etcd ready ADDR…   returns when every node serves
//
// What it is told and what it tells is described in cmd/lychgate/internal/bench/load, in Plan, Summary and Record.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "node":
		return runNode(ctx, args[1])
	case len(args) == 1 && args[0] == "worker":
		return work(ctx, os.Stdin, os.Stdout)
	case len(args) > 1 && args[0] == "leader":
		return printLeader(ctx, args[1:])
	case len(args) > 1 && args[0] == "ready":
		return awaitReady(ctx, args[1:])
	}
	return errors.New("usage: node PLAN | worker | leader ADDR [ADDR] | ready ADDR [ADDR]")
}
