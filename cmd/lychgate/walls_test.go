package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/lychgate/lychgate"

// A wall says what the packages of one part may import. Patterns are import paths, of this module without
// its prefix; "x/..." is x and all below it.
type wall struct {
	part  string
	may   []string // of this module, directly; its own package always
	never []string // at any distance, whoever is in between
	pure  bool     // no I/O, log, network or chance, directly or through others of this module
}

// The walls between the parts. The first row that fits a package holds for it; a package without a row is an
// error, so that a new part gets its wall.
var walls = []wall{
	{part: "coordinator/lease", pure: true},
	{part: "coordinator/internal/lock", may: []string{"coordinator/lease", "chaos/seeded"}, pure: true, never: raftAndWire},
	{part: "coordinator/internal/lock/locktest", may: []string{"coordinator/internal/lock", "coordinator/lease", "chaos/invariant"}, never: raftAndWire},
	{part: "coordinator/internal/lock/explore", may: []string{"coordinator/internal/lock", "coordinator/internal/lock/locktest", "coordinator/lease", "chaos/explore", "chaos/invariant", "chaos/model/fence"}, never: raftAndWire},
	{part: "coordinator/internal/lock/simulate", may: []string{"coordinator/internal/lock", "coordinator/internal/lock/locktest", "coordinator/lease", "chaos/invariant", "chaos/model/fence"}, never: raftAndWire},
	{part: "coordinator/internal/logpb/...", may: []string{"coordinator/internal/lock", "coordinator/lease", "coordinator/internal/logpb/..."}, never: []string{"coordinator/lockpb"}},
	{part: "coordinator/lockpb"},
	{part: "coordinator/lockpb/wire", may: []string{"coordinator/lockpb"}},
	{part: "coordinator/ticket/...", may: []string{"coordinator/lease", "coordinator/ticket/...", "chaos/seeded"}, never: outside},
	{part: "coordinator/client/...", may: []string{"coordinator/client/...", "coordinator/lease", "coordinator/lockpb/...", "coordinator/ticket"}, never: outside},
	{part: "coordinator/...", may: []string{"coordinator/...", "chaos/seeded"}, never: []string{"proxy/...", "adapters/...", "fencestore/...", "github.com/jackc/pgx/..."}},
	{part: "fencestore", pure: true, never: raftAndWire},
	{part: "fencestore/fencestoretest", may: []string{"fencestore", "chaos/invariant", "coordinator/lease"}, never: append([]string{"proxy/...", "adapters/..."}, outside...)},
	{part: "fencestore/...", may: []string{"fencestore/...", "sql/...", "chaos/seeded"}, never: []string{"coordinator/...", "proxy/...", "adapters/..."}},
	{part: "proxy/gate", may: []string{"chaos/seeded", "fencestore", "coordinator/ticket", "coordinator/lease"}, never: append([]string{"adapters/...", "fencestore/pgstore", "fencestore/memstore"}, outside...)},
	{part: "proxy/gate/...", may: []string{"proxy/gate/...", "fencestore/...", "coordinator/ticket", "coordinator/lease"}, never: outside},
	{part: "proxy/admin", may: []string{"proxy/gate", "fencestore"}, never: append([]string{"adapters/..."}, outside...)},
	{part: "proxy/watch", may: []string{"proxy/gate", "fencestore/...", "coordinator/client/...", "coordinator/lockpb"}, never: append([]string{"adapters/..."}, outside...)},
	{part: "proxy/...", may: []string{"proxy/...", "adapters/...", "fencestore/...", "coordinator/client", "coordinator/ticket", "coordinator/lease"}, never: outside},
	{part: "adapters/adaptertest/...", may: []string{"adapters/adaptertest/...", "proxy/gate", "fencestore/..."}, never: outside},
	{part: "adapters/postgres/...", may: []string{"adapters/postgres/...", "adapters/adaptertest", "proxy/gate", "fencestore"}, never: outside},
	{part: "sql/...", may: []string{"sql/...", "chaos/seeded"}},
	{part: "chaos/invariant/...", may: []string{"coordinator/lease"}, pure: true},
	{part: "chaos/model/...", may: []string{"coordinator/lease", "chaos/invariant"}, never: raftAndWire},
	{part: "chaos/explore"},
	{part: "chaos/seeded", pure: true},
	{part: "chaos/...", may: []string{"..."}},
	{part: "deploy/...", may: []string{"..."}},
	{part: "cmd/...", may: []string{"..."}},
}

var (
	raftAndWire = []string{"github.com/hashicorp/raft/...", "google.golang.org/grpc/...", "google.golang.org/protobuf/...", "github.com/jackc/pgx/..."}
	outside     = []string{"coordinator/internal/...", "github.com/hashicorp/raft/...", "github.com/hashicorp/raft-boltdb/..."} // of the coordinator
	// What a pure package may not touch. Clocks stand in package time, which durations need: forbidigo sees to them.
	impure = []string{"net/...", "os/...", "log/...", "syscall/...", "io/ioutil", "math/rand/...", "crypto/rand", "sync/...", "runtime/...", "testing/...", "database/..."}
)

// A listed package, as go list prints it.
type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func TestWallsStand(t *testing.T) {
	packages := listPackages(t)
	for _, v := range violations(packages, walls) {
		t.Error(v)
	}
}

func TestGateDecisionIsPure(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), "proxy", "gate", "decide*.go"))
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if err != nil || len(files) == 0 {
		t.Fatalf("the gate's decision is not in proxy/gate/decide*.go (%v)", err)
	}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if pattern := match(append(slices.Clone(impure), raftAndWire...), path); pattern != "" {
				t.Errorf("%s imports %s: the gate's decision does no I/O", filepath.Base(name), path)
			}
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	allowed := strings.Fields("cmd coordinator proxy fencestore adapters sql deploy chaos go.mod go.sum Makefile README.md LICENSE bin")
	entries, err := os.ReadDir(moduleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && !slices.Contains(allowed, name) {
			t.Errorf("%s does not belong at the top level; known are %v", name, allowed)
		}
	}
}

func TestViolationsAreSeen(t *testing.T) {
	rows := []wall{
		{part: "core", may: []string{"words"}, pure: true},
		{part: "words", pure: true},
		{part: "near/...", may: []string{"near/...", "core"}, never: []string{"far/...", "example.org/raft/..."}},
		{part: "far/...", may: []string{"..."}},
	}
	own := func(path string, imports ...string) listed {
		return listed{ImportPath: modulePath + "/" + path, Imports: imports}
	}
	m := func(path string) string { return modulePath + "/" + path }
	for name, c := range map[string]struct {
		packages []listed
		want     string
	}{
		"allowed":                {[]listed{own("core", "fmt", "time", m("words")), own("words", "strings"), own("near/a", "net", m("near/b"), m("core")), own("near/b")}, ""},
		"pure imports net":       {[]listed{own("core", "net/netip")}, "core imports net/netip"},
		"pure imports outsider":  {[]listed{own("core", "example.org/x")}, "core imports example.org/x"},
		"pure through words":     {[]listed{own("core", m("words")), own("words", "os")}, "words imports os"},
		"not in the list":        {[]listed{own("near/a", m("words")), own("words")}, "near/a imports words"},
		"never, directly":        {[]listed{own("near/a", "example.org/raft")}, "near/a must never depend on example.org/raft"},
		"never, at a distance":   {[]listed{own("near/a", "example.org/x"), {ImportPath: "example.org/x", Imports: []string{"example.org/raft/v2"}}, {ImportPath: "example.org/raft/v2"}}, "near/a must never depend on example.org/raft/v2"},
		"no wall":                {[]listed{own("new")}, "new has no wall"},
		"prefix is not a parent": {[]listed{own("nearby")}, "nearby has no wall"},
	} {
		got := violations(c.packages, rows)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), c.want)) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// violations holds packages against walls and says what is wrong with each.
func violations(packages []listed, walls []wall) []string {
	byPath := map[string]listed{}
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	var out []string
	for _, p := range packages {
		path, own := strings.CutPrefix(p.ImportPath, modulePath+"/")
		if !own {
			continue
		}
		i := slices.IndexFunc(walls, func(w wall) bool { return fits(w.part, path) })
		if i < 0 {
			out = append(out, path+" has no wall: add a row")
			continue
		}
		out = append(out, walls[i].direct(path, p)...)
		for _, reached := range reachable(p.ImportPath, byPath) {
			if match(walls[i].never, reached) != "" {
				out = append(out, fmt.Sprintf("%s must never depend on %s", path, short(reached)))
			}
		}
	}
	return out
}

// direct checks the package's own import lines.
func (w wall) direct(path string, p listed) []string {
	var out []string
	for _, imported := range p.Imports {
		inner, own := strings.CutPrefix(imported, modulePath+"/")
		standard := !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
		switch {
		case own && inner != path && match(w.may, imported) == "":
			out = append(out, fmt.Sprintf("%s imports %s, which its wall does not let in", path, inner))
		case w.pure && !own && (!standard || match(impure, imported) != ""):
			out = append(out, fmt.Sprintf("%s imports %s: it has to stay pure", path, imported))
		}
	}
	return out
}

// reachable lists what a package depends on at any distance, the standard library left out.
func reachable(from string, byPath map[string]listed) []string {
	seen := map[string]bool{from: true}
	queue := []string{from}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, imported := range byPath[next].Imports {
			if seen[imported] || byPath[imported].Standard {
				continue
			}
			seen[imported] = true
			queue = append(queue, imported)
		}
	}
	delete(seen, from)
	out := make([]string, 0, len(seen))
	for path := range seen {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// match returns the first pattern that fits an import path, "" if none does.
func match(patterns []string, imported string) string {
	for _, pattern := range patterns {
		if fits(pattern, short(imported)) {
			return pattern
		}
	}
	return ""
}

func fits(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	parent, below := strings.CutSuffix(pattern, "/...")
	return path == parent || below && strings.HasPrefix(path, parent+"/")
}

func short(imported string) string { return strings.TrimPrefix(imported, modulePath+"/") }

func listPackages(t *testing.T) []listed {
	t.Helper()
	out := goTool(t, "list", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 100 {
		t.Fatalf("go list printed %d packages: too few to be all", len(packages))
	}
	return packages
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = moduleRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}
