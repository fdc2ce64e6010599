package bench

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"testing"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

// The peer's program is in a module of its own and shares no code with this one, so its idea of a plan and of a summary
// could drift away. What it knows must be what is sent.
func TestPeerSpeaksTheSameProtocol(t *testing.T) {
	structs := parseStructs(t, "../../../../.ci/etcd/worker.go")
	for name, ours := range map[string]reflect.Type{"plan": reflect.TypeFor[load.Plan](), "summary": reflect.TypeFor[load.Summary]()} {
		known := map[string]bool{}
		for i := range ours.NumField() {
			known[string(ours.Field(i).Tag)] = true
		}
		if len(structs[name]) < 5 {
			t.Fatalf("the peer's %s has %d fields: it is somewhere else", name, len(structs[name]))
		}
		for _, tag := range structs[name] {
			if !known[tag] {
				t.Errorf("the peer's %s has a field %s, which is not in load.%s", name, tag, ours.Name())
			}
		}
	}
}

// parseStructs are the tags of the fields of every struct in a file, by name.
func parseStructs(t *testing.T, path string) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				if f.Tag != nil {
					tag, err := strconv.Unquote(f.Tag.Value)
					if err != nil {
						t.Fatal(err)
					}
					tags[spec.Name.Name] = append(tags[spec.Name.Name], tag)
				}
			}
		}
		return false
	})
	return tags
}
