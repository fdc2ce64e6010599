package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Operator is what the console asks of the proxy. Except for Floors and Reload its methods return at once.
type Operator interface {
	Source
	// Listeners lists where the proxy listens.
	Listeners() []ListenerView
	// Limits lists how many connections there are and may be: in total, and of the databases and users that are connected.
	Limits() []LimitView
	// Floors lists the floors of the resources that have live bindings, through whatever proxy.
	Floors(ctx context.Context) ([]FloorView, error)
	// Figures lists what is counted, by name.
	Figures() ([]Figure, error)
	// Reload takes the configuration anew, all or nothing.
	Reload() error
	// Drain begins the planned end of the process.
	Drain()
	// Cut ends the connection of that number and reports whether there was one.
	Cut(number uint64) bool
}

// ListenerView is one listener as the console shows it.
type ListenerView struct {
	Name, Adapter, Address, Guarantee, Policy, Upstream, Database string
	TLS                                                           bool
	Bindings, Connections, MaxConnections                         int
	State                                                         string // "open" or "draining"
}

// LimitView is one limit as the console shows it.
type LimitView struct {
	Limit, Name string // "total", "database" or "user", and which
	Used, Max   int    // Max 0: any number
	Strangers   int    // of Used: neither logged in nor with a ticket
}

// FloorView is one floor as the console shows it.
type FloorView struct {
	Listener, Cluster, Resource string
	Token                       uint64
	Since                       time.Time
}

// Figure is one counted number: a metric with the values of its labels.
type Figure struct {
	Name, Labels string
	Value        float64
}

// consoleError is what a client is told of a statement that fails.
type consoleError struct{ code, message, hint string }

func (e *consoleError) Error() string { return e.message }

func consoleErr(code, format string, args ...any) *consoleError {
	return &consoleError{code: code, message: fmt.Sprintf(format, args...), hint: "SHOW HELP lists what there is."}
}

// command is one statement of the console; zero: an empty one.
type command struct {
	verb     string // as in verbs
	argument string
}

// verb is what the console knows.
type verb struct {
	name     string
	argument string   // names what follows; empty: nothing does
	columns  []string // of the rows; nil: there are none
	steers   bool     // changes something
	about    string
	run      func(ctx context.Context, o Operator, argument string) ([][]string, error)
}

// verbs are in the order of SHOW HELP.
func verbs() []verb {
	return []verb{
		{name: "SHOW HELP", columns: []string{"command", "does"}, about: "lists these", run: showHelp},
		{
			name: "SHOW BINDINGS", about: "the connections through this proxy that are bound to a resource", run: showBindings,
			columns: []string{"binding", "listener", "client", "cluster", "resource", "token", "mode", "process", "since"},
		},
		{
			name: "SHOW FLOORS", about: "the floors of the resources that are bound now, through whatever proxy", run: showFloors,
			columns: []string{"listener", "cluster", "resource", "floor", "since"},
		},
		{
			name: "SHOW REJECTIONS", about: "how often the fence has refused, by reason", run: showRejections,
			columns: []string{"adapter", "reason", "count"},
		},
		{name: "SHOW STATS", columns: []string{"name", "labels", "value"}, about: "all figures, as /metrics has them", run: showStats},
		{
			name: "SHOW LISTENERS", about: "where the proxy listens, and what it promises there", run: showListeners,
			columns: []string{"listener", "adapter", "address", "state", "guarantee", "policy", "tls", "upstream", "database", "bindings", "connections", "max_connections"},
		},
		{
			name: "SHOW LIMITS", about: "connections, in total and by database and user, and how many there may be (0: any number)", run: showLimits,
			columns: []string{"limit", "name", "connections", "max", "not logged in"},
		},
		{name: "SHOW PROBLEMS", columns: []string{"problem"}, about: "why the proxy is not ready; none: it is", run: showProblems},
		{name: "RELOAD", steers: true, about: "takes the configuration anew, all or nothing", run: runReload},
		{name: "DRAIN", steers: true, about: "lets open transactions end, then exits", run: runDrain},
		{name: "CUT", argument: "<binding>", steers: true, about: "ends one connection of SHOW BINDINGS; its floor stays", run: runCut},
	}
}

func find(name string) (verb, bool) {
	all := verbs()
	i := slices.IndexFunc(all, func(v verb) bool { return v.name == name })
	if i < 0 {
		return verb{}, false
	}
	return all[i], true
}

// parseCommands reads statements that end with semicolons or the text.
func parseCommands(text string) ([]command, error) {
	var list []command
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		c, err := parseCommand(words)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

func parseCommand(words []string) (command, error) {
	name := strings.ToUpper(words[0])
	rest := words[1:]
	if name == "SHOW" && len(rest) > 0 {
		name, rest = name+" "+strings.ToUpper(rest[0]), rest[1:]
	}
	v, ok := find(name)
	switch {
	case !ok:
		return command{}, consoleErr(stateSyntax, "the console does not know %q", shorten(strings.Join(words, " ")))
	case v.argument == "" && len(rest) > 0:
		return command{}, consoleErr(stateSyntax, "%s takes nothing behind it, not %q", name, shorten(strings.Join(rest, " ")))
	case v.argument != "" && len(rest) != 1:
		return command{}, consoleErr(stateSyntax, "%s takes one %s", name, v.argument)
	}
	return command{verb: name, argument: strings.Join(rest, "")}, nil
}

// shorten bounds what of a statement comes back in an error.
func shorten(text string) string {
	const limit = 60
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return text
}

func (c command) empty() bool { return c.verb == "" }

func (c command) columns() []string { v, _ := find(c.verb); return v.columns }

func (c command) steers() bool { v, _ := find(c.verb); return v.steers }

// tag is the command's tag as the protocol has it.
func (c command) tag() string { verb, _, _ := strings.Cut(c.verb, " "); return verb }

func (c command) run(ctx context.Context, o Operator) ([][]string, error) {
	v, ok := find(c.verb)
	if !ok {
		panic("admin: a command that was not parsed")
	}
	return v.run(ctx, o, c.argument)
}

func showHelp(context.Context, Operator, string) (rows [][]string, _ error) {
	for _, v := range verbs() {
		rows = append(rows, []string{strings.TrimSpace(v.name + " " + v.argument), v.about})
	}
	return rows, nil
}

func showBindings(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	for _, b := range o.Bindings() {
		rows = append(rows, bindingRow(b))
	}
	return rows, nil
}

func bindingRow(b gate.BindingView) []string {
	return []string{
		number(b.ID), b.Listener, b.Remote, b.Cluster, b.Resource, number(b.Token), b.Mode, b.Session, instant(b.Since),
	}
}

func showFloors(ctx context.Context, o Operator, _ string) (rows [][]string, _ error) {
	floors, err := o.Floors(ctx)
	for _, f := range floors {
		rows = append(rows, []string{f.Listener, f.Cluster, f.Resource, number(f.Token), instant(f.Since)})
	}
	return rows, err
}

func showRejections(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	figures, err := o.Figures()
	for _, f := range figures {
		if f.Name != rejectionsName {
			continue
		}
		var adapter, reason string
		for label := range strings.SplitSeq(f.Labels, " ") {
			if v, ok := strings.CutPrefix(label, "adapter="); ok {
				adapter = v
			}
			if v, ok := strings.CutPrefix(label, "reason="); ok {
				reason = v
			}
		}
		rows = append(rows, []string{adapter, reason, decimal(f.Value)})
	}
	return rows, err
}

func showStats(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	figures, err := o.Figures()
	for _, f := range figures {
		rows = append(rows, []string{f.Name, f.Labels, decimal(f.Value)})
	}
	return rows, err
}

func showListeners(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	for _, l := range o.Listeners() {
		rows = append(rows, []string{
			l.Name, l.Adapter, l.Address, l.State, l.Guarantee, l.Policy, strconv.FormatBool(l.TLS), l.Upstream, l.Database, strconv.Itoa(l.Bindings),
			strconv.Itoa(l.Connections), strconv.Itoa(l.MaxConnections),
		})
	}
	return rows, nil
}

func showLimits(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	for _, l := range o.Limits() {
		rows = append(rows, []string{l.Limit, l.Name, strconv.Itoa(l.Used), strconv.Itoa(l.Max), strconv.Itoa(l.Strangers)})
	}
	return rows, nil
}

func showProblems(_ context.Context, o Operator, _ string) (rows [][]string, _ error) {
	for _, p := range o.Problems() {
		rows = append(rows, []string{p})
	}
	return rows, nil
}

func runReload(_ context.Context, o Operator, _ string) ([][]string, error) { return nil, o.Reload() }

func runDrain(_ context.Context, o Operator, _ string) ([][]string, error) {
	o.Drain()
	return nil, nil
}

func runCut(_ context.Context, o Operator, argument string) ([][]string, error) {
	n, err := strconv.ParseUint(argument, 10, 64)
	if err != nil {
		return nil, consoleErr(stateSyntax, "CUT takes the number of a binding, not %q", shorten(argument))
	}
	if !o.Cut(n) {
		return nil, consoleErr(stateNoObject, "there is no binding %d", n)
	}
	return nil, nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z07:00") }
