package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

var (
	resource = os.Getenv("RESOURCE")
	tickets  = strings.Fields(os.Getenv("TICKETS"))
	host     = os.Getenv("PGHOST")
	port     = os.Getenv("PGPORT")
	root     = os.Getenv("ROOTCERT")
	large    = strings.Repeat("0123456789abcdef", 256<<10/16)
	at       int // of the holder's ticket
)

func holder() string { return tickets[at] }

// next is the ticket of a successor, who is the holder from now on.
func next() string {
	at++
	return holder()
}

// opened is what a case has opened; it is closed when the case is over.
var opened []func()

func closeAll() {
	for _, end := range opened {
		end()
	}
	opened = nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](v T, err error) T {
	must(err)
	return v
}

func equal(got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("got %v, want %v", brief(got), brief(want)))
	}
}

func brief(v any) string {
	text := fmt.Sprint(v)
	return text[:min(len(text), 200)]
}

// sqlState is the code in an error of either driver.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// code wants an error with one of the SQLSTATEs.
func code(err error, want ...string) {
	for _, w := range want {
		if sqlState(err) == w {
			return
		}
	}
	panic(fmt.Sprintf("got %v, want %v", err, want))
}

// background runs f and gives what waits for it.
func background(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// when polls until the query says true.
func when(ctx context.Context, ask func(context.Context) bool) {
	for !ask(ctx) {
		must(ctx.Err())
	}
}
