// Command go runs the cases of one of Go's drivers against the proxy, and prints a line for each.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

func main() {
	for driver, cases := range map[string]func(){
		"pgx":        func() { pgxCases(); pgxModeCases(); pgxPoolCases(); pgxPoolUseCases() },
		"pgx-stdlib": func() { databaseCases(overPgx); stdlibCases() },
		"lib-pq":     func() { databaseCases(overPq); pqCases() },
	} {
		if os.Args[1] == driver {
			cases()
		}
	}
	os.Exit(runAll())
}

type testCase struct {
	name string
	run  func(context.Context)
}

var all []testCase

func test(name string, run func(context.Context)) { all = append(all, testCase{name, run}) }

func runAll() (exit int) {
	for _, c := range all {
		if why := c.attempt(); why != nil {
			exit = 1
			fmt.Printf("not ok %s: %s\n", c.name, strings.Join(strings.Fields(fmt.Sprint(why)), " "))
			continue
		}
		fmt.Println("ok", c.name)
	}
	return exit
}

// attempt runs a case. What it panics with is why it does not hold.
func (c testCase) attempt() (why any) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer closeAll()
	defer func() {
		if why = recover(); why != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", c.name, why, debug.Stack())
		}
	}()
	c.run(ctx)
	return nil
}
