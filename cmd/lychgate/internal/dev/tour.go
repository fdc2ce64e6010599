package dev

import (
	"fmt"
	"io"
	"strings"
)

// Endpoints is where everything is.
type Endpoints struct {
	GRPC     []string `json:"grpc"`     // of each node
	HTTP     []string `json:"http"`     // of each node, as URLs
	Proxy    string   `json:"proxy"`    // host:port for PostgreSQL clients, fenced
	Admin    string   `json:"admin"`    // URL of the proxy's metrics, health and bindings
	Database string   `json:"database"` // behind the proxy
	User     string   `json:"user"`     // that may log in
	Password string   `json:"password,omitempty"`
	Direct   string   `json:"direct"` // connection string that goes round the proxy, to see the guard refuse
	// Superuser is a connection string for what an administrator does; empty where the server is not dev's own.
	Superuser string `json:"superuser,omitempty"`
	Dir       string `json:"dir"`
}

// Environment lists the variables that point clients at dev, in the order in which they are shown.
func (e Endpoints) Environment() [][2]string {
	proxyHost, proxyPort, _ := strings.Cut(e.Proxy, ":")
	vars := [][2]string{
		{"LYCHGATE_ADDR", strings.Join(e.GRPC, ",")},
		{"LYCHGATE_PROXY", e.Proxy},
		{"PGHOST", proxyHost},
		{"PGPORT", proxyPort},
		{"PGUSER", e.User},
		{"PGDATABASE", e.Database},
	}
	if e.Password != "" {
		vars = append(vars, [2]string{"PGPASSWORD", e.Password})
	}
	if e.Superuser != "" { // not LYCHGATE_…: servers would read that as a key of their configuration
		vars = append(vars, [2]string{"SUPERUSER_DSN", e.Superuser})
	}
	return vars
}

// WriteTour writes what a person pastes and tries next; program is how lychgate is called.
func WriteTour(w io.Writer, e Endpoints, program string) error {
	var b strings.Builder
	b.WriteString("Paste this into another terminal:\n\n")
	for _, v := range e.Environment() {
		fmt.Fprintf(&b, "  export %s='%s'\n", v[0], v[1]) // no value holds a quote: names, numbers, letters
	}
	fmt.Fprintf(&b, `
Then try:

  psql -c "INSERT INTO ledger (region, entry) VALUES ('eu', 'no ticket')"   # refused (LG002)
  %s run ledger/eu -- psql -c "INSERT INTO ledger (region, entry) VALUES ('eu', 'fenced')"   # written under a lock
  curl -s %s/metrics | grep lychgate_fencing   # what was refused, and why

Coordinators: %s (HTTP). Data: %s. Ctrl-C stops everything.
`, program, e.Admin, strings.Join(e.HTTP, ", "), e.Dir)
	_, err := io.WriteString(w, b.String())
	return err
}
