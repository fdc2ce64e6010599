package proxy

import (
	"errors"
	"strings"
	"testing"
)

func TestLimitsThatAreWrongAreNamed(t *testing.T) {
	for field, limits := range map[string]Limits{
		"limits.connections":              {Connections: -1},
		"limits.per_database":             {PerDatabase: -1},
		"limits.per_user":                 {PerUser: -1},
		"limits.users[0].name":            {Users: []NamedLimit{{Connections: 1}}},
		"limits.users[1].name":            {Users: []NamedLimit{{"a", 1}, {"a", 2}}},
		"limits.databases[0].connections": {Databases: []NamedLimit{{"a", -1}}},
	} {
		var wrong *FieldError
		c := offline()
		c.Limits = limits
		if err := c.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestConsoleAndMetricsShowLimits(t *testing.T) {
	i, r := startWithConsole(t, func(c *Config) { c.Limits = Limits{PerDatabase: 7, Users: []NamedLimit{{"app", 1}}} })
	if _, err := r.connect(t, i.ticket(t, "ledger", 41)); err != nil {
		t.Fatal(err)
	}
	_, err := r.connect(t, i.ticket(t, "ledger", 41))
	wantCode(t, "one more of the user", err, "53300")
	for statement, want := range map[string][]string{
		"show limits":    {"total||1|0|0\n", "database|app|1|7|0\n", "user|app|1|1|0\n"},
		"show listeners": {"|1|1|1000\n"},
		"show stats": {
			"lychgate_connections_refused_total|limit=user listener=", "|1\n", "lychgate_connections|listener=",
		},
	} {
		out := r.mustPsql(t, statement)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", statement, w, out)
			}
		}
	}
}
