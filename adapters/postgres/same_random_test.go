package postgres_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// texts is what a generated conversation says. They are few, so that they meet, and do not depend on the time.
var texts = []string{
	"select 1", "select n, who from entry order by n", "select 1/0", "select nonsense", "", "select 1; select 2", "select 1; select 1/0; select 2",
	"select g, repeat('x', g * 100) from generate_series(1, 20) g", "select $1::int", "select $1::text, $2::int8",
	"begin", "begin", "commit", "rollback", "savepoint s", "rollback to s", "release s", "commit and chain", "begin; select 1/0", "begin isolation level serializable",
	"insert into entry values (1, 'a')", "insert into entry values (2, 'b')", "insert into entry values (3, 'c') returning n", "delete from entry returning who",
	"insert into entry values (4, 'd'); commit; insert into entry values (5, 'e')", "insert into entry values ($1, 'p')",
	"copy entry from stdin", "copy entry from stdin; select 9", "copy (select g from generate_series(1, 5) g) to stdout", "copy (select 1/(3-g) from generate_series(1, 5) g) to stdout",
	"declare c cursor for select g from generate_series(1, 5) g", "fetch 2 from c", "close c", "close all",
	"set timezone = 'Asia/Tokyo'", "set local datestyle = 'German'", "show timezone", "reset all", "discard all", "deallocate all", "prepare s0 as select 5", "execute s0",
	"listen a", "notify a, 'x'", "unlisten *", "do $$ begin raise notice 'n'; end $$", "do $$ begin commit; end $$", "vacuum entry", "create temp table scratch (a int)", "select * from scratch",
}

// action is one message, or a few that often come together.
func action(t *rapid.T) []message {
	of := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	name := func() string { return of("name", "", "", "s0", "s1") }
	portal := func() string { return of("portal", "", "", "p0", "c") }
	parameters := func() [][]byte {
		return values([][]string{nil, {"7"}, {"7", "8"}, {"x"}, {"x", "1"}}[rapid.IntRange(0, 4).Draw(t, "parameters")])
	}
	limit := func() uint32 { return rapid.SampledFrom([]uint32{0, 0, 1, 2}).Draw(t, "limit") }
	text := func() string { return rapid.SampledFrom(texts).Draw(t, "text") }
	switch of("kind", "query", "query", "run", "run", "run", "parse", "bind", "execute", "execute", "sync", "sync", "sync", "flush", "describe",
		"close", "data", "data", "done", "fail", "call") {
	case "query":
		return []message{&query{String: text()}}
	case "run":
		return []message{&parse{Query: text()}, &bind{}, &descr{ObjectType: 'P'}, &execute{MaxRows: limit()}}
	case "parse":
		return []message{&parse{Name: name(), Query: text()}}
	case "bind":
		formats := rapid.SampledFrom([][]int16{nil, nil, {1}, {0}}).Draw(t, "formats")
		return []message{&bind{DestinationPortal: portal(), PreparedStatement: name(), Parameters: parameters(), ResultFormatCodes: formats}}
	case "execute":
		return []message{&execute{Portal: portal(), MaxRows: limit()}}
	case "sync":
		return []message{&sync_{}}
	case "flush":
		return []message{&flush{}}
	case "describe":
		return describeOrClose(of("what", "S", "P"), portal, name, func(typ byte, name string) message { return &descr{ObjectType: typ, Name: name} })
	case "close":
		return describeOrClose(of("what", "S", "P"), portal, name, func(typ byte, name string) message { return &close_{ObjectType: typ, Name: name} })
	case "data":
		return []message{&copyData{Data: []byte(of("row", "6\tx\n", "6\tx\n", "7\t", "y\n", "x\n", "\\.\n"))}}
	case "done":
		return []message{&copyDone{}}
	case "fail":
		return []message{&copyFail{Message: "no"}}
	}
	return []message{&call{Function: 1317, Arguments: [][]byte{[]byte("four")}}}
}

func describeOrClose(what string, portal, name func() string, make func(byte, string) message) []message {
	if what == "S" {
		return []message{make('S', name())}
	}
	return []message{make('P', portal())}
}

// The same of conversations that are made up: 100 a run, others each time. A failure is shrunk and says its seed;
// -rapid.seed repeats it, -rapid.checks asks for more.
func TestSameMessagesAtRandom(t *testing.T) {
	c := newComparison(t)
	played := 0
	rapid.Check(t, func(rt *rapid.T) {
		var sent []byte
		var list string
		for range rapid.IntRange(1, 25).Draw(rt, "length") {
			for _, m := range action(rt) {
				var err error
				if sent, err = m.Encode(sent); err != nil {
					rt.Fatal(err)
				}
				list += fmt.Sprintf("\n%T %+v", m, m)
			}
		}
		for range 3 { // whatever it has begun, it ends
			sent, _ = (&copyFail{Message: "the end"}).Encode(sent)
			sent, _ = (&sync_{}).Encode(sent)
		}
		one := conversation{turns: []turn{{send: sent}}}
		want := c.play(t, c.direct, one.turns)
		played++
		for _, l := range []leg{c.proxied[played%2], c.proxied[2+played/2%2]} {
			if difference := c.compare(t, want, l, one); difference != "" {
				rt.Fatalf("%s\n\nsent:%s", difference, list)
			}
		}
	})
	t.Logf("%d conversations through a proxy compared, %d messages", c.conversations, c.messages)
	if c.conversations < 100 || c.messages < 2000 {
		t.Errorf("only %d conversations and %d messages were compared", c.conversations, c.messages)
	}
}
