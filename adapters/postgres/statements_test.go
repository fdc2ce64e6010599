package postgres

import (
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
)

// What a name stands for is not known before the server has answered: what may commit is kept where there is a doubt.
func TestNamesKeepThatTheyMayCommit(t *testing.T) {
	for name, c := range map[string]struct {
		name string
		then func(m *statements, name []byte)
		want bool
	}{
		"prepared again, which the server refuses": {"c", func(m *statements, n []byte) { m.prepare(n, nil, sqltext.Parse([]byte("select 1")), true) }, true},
		"the unnamed statement":                    {"", func(m *statements, n []byte) { m.prepare(n, nil, sqltext.Parse([]byte("select 1")), true) }, false},
		"the unnamed statement in a batch":         {"", func(m *statements, n []byte) { m.prepare(n, nil, sqltext.Parse([]byte("select 1")), false) }, true},
		"refused":                                  {"c", (*statements).doubt, true},
		"without a ticket since":                   {"c", func(m *statements, _ []byte) { m.distrust() }, true},
		"closed":                                   {"c", (*statements).forget, false},
		"closed and prepared again": {"c", func(m *statements, n []byte) {
			m.forget(n)
			m.prepare(n, nil, sqltext.Parse([]byte("select 1")), true)
		}, false},
	} {
		var m statements
		m.prepare([]byte(c.name), nil, sqltext.Parse([]byte("commit")), true)
		if !m.statement([]byte(c.name)).Commits {
			t.Fatal("a COMMIT does not commit")
		}
		c.then(&m, []byte(c.name))
		if got := m.statement([]byte(c.name)).Commits; got != c.want {
			t.Errorf("%s: may commit: %v, want %v", name, got, c.want)
		}
	}
}
