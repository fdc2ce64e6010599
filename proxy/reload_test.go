package proxy

import (
	"slices"
	"strings"
	"testing"
)

// reloadWith has the proxy take a changed configuration.
func (r *running) reloadWith(change func(*Config)) error {
	next := r.applied
	next.Postgres = slices.Clone(next.Postgres)
	change(&next)
	r.load = func() (Config, error) { return next, nil }
	return r.Reload()
}

func (r *running) mustReload(t *testing.T, change func(*Config)) {
	t.Helper()
	if err := r.reloadWith(change); err != nil {
		t.Fatal(err)
	}
}

// Who is there goes on as it came, and loses nothing; who comes later gets what is new.
func TestReloadIsForThoseWhoComeLater(t *testing.T) {
	i, r := startWithConsole(t, nil)
	bound, err := r.connect(t, i.ticket(t, "ledger", 1))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := bound.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	barred, err := r.connect(t, "")
	if err != nil {
		t.Fatal(err)
	}

	r.mustReload(t, func(c *Config) { c.Postgres[0].Policy = "allow" })
	_, err = barred.Exec(t.Context(), "select 1")
	wantCode(t, "without a ticket, from before", err, "LG002")
	open, err := r.connect(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(t.Context(), "select 1"); err != nil {
		t.Errorf("under the new policy: %v", err)
	}
	for statement, want := range map[string]string{"show listeners": "|strict|allow|", "show stats": "policy=allow"} {
		if out := r.mustPsql(t, statement); !strings.Contains(out, want) || strings.Contains(out, "policy=require") {
			t.Errorf("%s: no %q alone in\n%s", statement, want, out)
		}
	}

	r.mustReload(t, func(c *Config) { c.Postgres[0].Policy, c.Postgres[0].MaxConnections = "require", 3 })
	_, err = r.connect(t, i.ticket(t, "ledger", 1))
	wantCode(t, "one more than there may be", err, "53300")
	if _, err := open.Exec(t.Context(), "select 1"); err != nil {
		t.Errorf("under the policy under which it came: %v", err)
	}
	if _, err := tx.Exec(t.Context(), "insert into note values ('kept')"); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("a transaction that was open at the reload: %v", err)
	}
}

func TestReloadThatFailsChangesNothing(t *testing.T) {
	i, r := startWithConsole(t, nil)
	err := r.reloadWith(func(c *Config) {
		c.Postgres[0].Policy, c.Postgres[0].MaxConnections, c.Limits.Connections = "allow", 1, 1
		c.Postgres[0].StoreConns++
	})
	if err == nil || !strings.Contains(err.Error(), "postgres[0].store_conns: ") || !strings.Contains(err.Error(), "needs a restart") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if _, err := r.connect(t, i.ticket(t, "ledger", 1)); err != nil {
			t.Error(err)
		}
	}
	barred, err := r.connect(t, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = barred.Exec(t.Context(), "select 1")
	wantCode(t, "under the old policy", err, "LG002")
}

// Reloads drop nothing of what runs.
func TestReloadUnderLoad(t *testing.T) {
	i, r := startWithConsole(t, nil)
	const clients, rounds = 4, 25
	results := make(chan error, clients*rounds)
	for range clients {
		conn, err := r.connect(t, i.ticket(t, "ledger", 1))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range rounds {
				_, err := conn.Exec(t.Context(), "select 1")
				results <- err
			}
		}()
	}
	policies := []string{"allow", "require", "read-only"}
	for at := range clients * rounds {
		r.mustReload(t, func(c *Config) { c.Postgres[0].Policy, c.Postgres[0].MaxConnections = policies[at%3], 1+at%5 })
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}
