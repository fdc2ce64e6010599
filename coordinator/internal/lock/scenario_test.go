package lock_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios of testdata give into them")

// TestScenarios runs testdata/*.txt. A file is a list of blocks: a directive and its lines, "----", what it gives,
// an empty line. Lines that begin with # are comments. The directives:
//
//	config NAME=VALUE…   first only: differences from the base config (see baseConfig), and the cluster's version=, 1 unless given
//	entry TIME           applies one log entry at TIME of the commands on the following lines (see parser)
//	view RESOURCE        what others see of it
//	request CLIENT/ID    what has become of it
//	edges                who waits for whom
//	twin                 from here on a replica restored from a snapshot runs along, and must agree in everything
//
// Every entry is also judged by the invariants. -rewrite fills in what the directives give.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s *scenario
	var out strings.Builder
	for _, b := range splitBlocks(t, string(text)) {
		out.WriteString(b.comment)
		if len(b.lines) == 0 {
			continue
		}
		if s == nil {
			s = newScenario(t, b.lines[0])
		}
		got := s.run(b.lines)
		if !*rewrite && got != b.want {
			t.Errorf("%s:%d: %s\ngave\n%swant\n%s", file, b.number, strings.Join(b.lines, "\n"), got, b.want)
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", strings.Join(b.lines, "\n"), got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimSuffix(out.String(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// block is a directive with its lines and what it should give.
type block struct {
	number  int // of the directive's line
	comment string
	lines   []string
	want    string
}

func splitBlocks(t *testing.T, text string) []block {
	t.Helper()
	var blocks []block
	var b block
	inWant := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case inWant && line == "":
			blocks, b, inWant = append(blocks, b), block{}, false
		case inWant:
			b.want += line + "\n"
		case line == "----":
			inWant = true
		case len(b.lines) == 0 && (line == "" || strings.HasPrefix(line, "#")):
			b.comment += line + "\n"
		case line == "":
			t.Fatalf("line %d: a directive without ----", i+1)
		default:
			if len(b.lines) == 0 {
				b.number = i + 1
			}
			b.lines = append(b.lines, line)
		}
	}
	b.comment = strings.TrimSuffix(b.comment, "\n")
	return append(blocks, b)
}

// scenario is the machine that a file's directives work on.
type scenario struct {
	t      *testing.T
	live   *observer
	twin   *lock.Machine
	parser *parser
	names  map[lease.ID]string
}

func baseConfig() lock.Config {
	return lock.Config{
		DefaultTTL: 30 * time.Second, MinTTL: 5 * time.Second, MaxTTL: time.Hour,
		MaxWait: 5 * time.Minute, RetryWindow: time.Minute, Grace: 10 * time.Second,
		ClaimWindow: 8 * time.Second, HeadStart: time.Second,
		MaxWaiters: 10, MaxRequests: 10, MaxExpiries: 10,
	}
}

func newScenario(t *testing.T, first string) *scenario {
	t.Helper()
	config, version := baseConfig(), uint32(1)
	if fields := strings.Fields(first); fields[0] == "config" {
		version = setConfig(t, &config, fields[1:])
	}
	s := &scenario{t: t, live: newObserver(config), names: make(map[lease.ID]string)}
	s.live.DescribeRenewals()
	s.parser = &parser{t: t, ids: make(map[string]lease.ID), names: s.names}
	s.apply(lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "test", Version: version, Config: config}}})
	return s
}

func setConfig(t *testing.T, c *lock.Config, fields []string) (version uint32) {
	t.Helper()
	version = 1
	durations := map[string]*time.Duration{
		"grace": &c.Grace, "claim": &c.ClaimWindow, "headstart": &c.HeadStart,
		"maxwait": &c.MaxWait, "window": &c.RetryWindow,
	}
	counts := map[string]*int{"waiters": &c.MaxWaiters, "requests": &c.MaxRequests, "tenantrequests": &c.MaxTenantRequests, "expiries": &c.MaxExpiries}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch {
		case durations[name] != nil:
			*durations[name], err = time.ParseDuration(value)
		case counts[name] != nil:
			_, err = fmt.Sscan(value, counts[name])
		case name == "version":
			_, err = fmt.Sscan(value, &version)
		default:
			err = fmt.Errorf("unknown")
		}
		if err != nil {
			t.Fatalf("config %s: %v", field, err)
		}
	}
	return version
}

func (s *scenario) run(lines []string) string {
	s.t.Helper()
	fields := strings.Fields(lines[0])
	switch fields[0] {
	case "config":
		return "ok\n"
	case "entry":
		return s.entry(fields[1], lines[1:])
	case "view":
		return s.formatView(s.live.Get(lease.Resource(fields[1])))
	case "request":
		client, request, _ := strings.Cut(fields[1], "/")
		state, grant := s.live.Request("me", lease.ClientID(client), lease.RequestID(request))
		if state == lock.RequestHeld {
			return s.formatGrant(grant) + "\n"
		}
		return state.String() + "\n"
	case "edges":
		return s.formatEdges()
	case "twin":
		s.twin = restore(s.t, s.live.Machine)
		s.twin.DescribeRenewals()
		return "ok\n"
	}
	s.t.Fatalf("unknown directive %q", lines[0])
	return ""
}

func (s *scenario) entry(at string, lines []string) string {
	now, err := time.ParseDuration(at)
	if err != nil {
		s.t.Fatal(err)
	}
	e := lock.Entry{Now: lock.LeaseTime(now)}
	for _, line := range lines {
		e.Commands = append(e.Commands, s.parser.command(line, max(e.Now, s.live.Info().Now)))
	}
	results, events := s.apply(e)
	return s.formatOutcome(results, events)
}

func (s *scenario) apply(e lock.Entry) ([]lock.Result, []lock.Event) {
	if err := s.live.Accepts(e); err != nil {
		s.t.Fatal(err)
	}
	results, events, err := s.live.step(e)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.twin == nil {
		return results, events
	}
	twinResults, twinEvents := s.twin.Apply(s.live.Info().Index, e)
	live, twin := s.formatOutcome(results, events), s.formatOutcome(twinResults, twinEvents)
	if live != twin || s.twin.Digest() != s.live.Digest() {
		s.t.Errorf("the restored replica disagrees:\n%swant\n%s", twin, live)
	}
	return results, events
}
