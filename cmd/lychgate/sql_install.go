package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	fencesql "github.com/lychgate/lychgate/sql"
)

func sqlInstallCommand(db *sqlTarget) *cobra.Command {
	var options fencesql.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the schema fence, or bring it up to date",
		Long: `Install the schema fence, or bring it up to date, make the roles that are missing, and let the
proxy's role in. The proxy's role is made without a password: set one, or let pg_hba.conf
say how it may log in.`,
		Example: `  lychgate sql install --dsn postgres://postgres@db/app
  PGHOST=db PGUSER=postgres PGDATABASE=app lychgate sql install --proxy-role gatekeeper`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				state, err := fencesql.Install(ctx, conn, options)
				if err != nil {
					return err
				}
				if err := printState(cmd.OutOrStdout(), state, asJSON); err != nil || asJSON {
					return err
				}
				return printNext(cmd.OutOrStdout(), conn.Config(), options.ProxyRole)
			})
		},
	}
	cmd.Flags().StringVar(&options.ProxyRole, "proxy-role", fencesql.DefaultProxyRole, "`role` that proxies log in as")
	cmd.Flags().StringVar(&options.Cluster, "cluster", "", "pin the database to this `cluster` (default: the first whose ticket comes)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func sqlStatusCommand(db *sqlTarget) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Tell what is installed, what is protected, and what is wrong",
		Example: "  lychgate sql status --dsn postgres://postgres@db/app --json",
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				state, err := fencesql.Status(ctx, conn)
				if err != nil {
					return err
				}
				if err := printState(cmd.OutOrStdout(), state, asJSON); err != nil || asJSON || state.Installed {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "install it: lychgate sql install")
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func sqlUninstallCommand(db *sqlTarget) *cobra.Command {
	var forget, asJSON bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the schema fence and what install made",
		Long: `Remove the schema fence and the roles that install made. Refused while a table is protected,
and while there are floors unless --forget-floors is given: without its floors the database
would accept tickets again that it refuses now.`,
		Example: "  lychgate sql uninstall --forget-floors",
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				if err := mayForget(ctx, conn, forget); err != nil {
					return err
				}
				if err := fencesql.Uninstall(ctx, conn); err != nil {
					return err
				}
				state, err := fencesql.Status(ctx, conn)
				if err != nil {
					return err
				}
				return printState(cmd.OutOrStdout(), state, asJSON)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&forget, "forget-floors", false, "remove the floors too: stale tickets would be accepted again")
	return cmd
}

// printNext says what is left to do after the installation.
func printNext(w io.Writer, db *pgx.ConnConfig, role string) error {
	store := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + db.Database}
	if network, _ := pgconn.NetworkAddress(db.Host, db.Port); network == "unix" {
		store.RawQuery = url.Values{"host": {db.Host}, "port": {strconv.Itoa(int(db.Port))}}.Encode()
	} else {
		store.Host = net.JoinHostPort(db.Host, strconv.Itoa(int(db.Port)))
	}
	_, err := fmt.Fprintf(w, `
next:
  let the role log in:  \password %s in psql, or a line for it in pg_hba.conf
  guard your tables:    lychgate sql protect TABLE EXPRESSION
  the proxy's "store":  %s
`, role, &store)
	return err
}

func mayForget(ctx context.Context, conn *pgx.Conn, forget bool) error {
	state, err := fencesql.Status(ctx, conn)
	if err != nil {
		return err
	}
	if state.Floors > 0 && !forget {
		return fmt.Errorf("uninstall: %d floors would be forgotten, and stale tickets accepted again; say --forget-floors if that is meant", state.Floors)
	}
	return nil
}

// stateView is a state as --json prints it.
type stateView struct {
	Installed  bool          `json:"installed"`
	Version    int           `json:"version"`
	Latest     int           `json:"latest"`
	Cluster    string        `json:"cluster"`
	ProxyRoles []string      `json:"proxyRoles"`
	Floors     int64         `json:"floors"`
	Folded     uint64        `json:"folded,string"` // every token below is refused
	Bindings   int64         `json:"bindings"`
	Sessions   []sessionView `json:"sessions"` // of the bindings, the oldest first
	Tables     []tableView   `json:"tables"`
	Problems   []string      `json:"problems"`
}

type sessionView struct {
	Cluster     string  `json:"cluster"`
	Resource    string  `json:"resource"`
	Token       uint64  `json:"token,string"`
	Shared      bool    `json:"shared"`
	PID         int32   `json:"pid"`
	State       string  `json:"state"` // "gone" when the session has ended
	Role        string  `json:"role"`
	Application string  `json:"application"`
	Age         float64 `json:"ageSeconds"`
	Transaction float64 `json:"transactionSeconds"`
}

type tableView struct {
	Name     string `json:"name"`
	Resource string `json:"resource"`
	Complete bool   `json:"complete"`
}

func printState(w io.Writer, s fencesql.State, asJSON bool) error {
	if asJSON {
		return printJSON(w, viewState(s))
	}
	if !s.Installed {
		_, err := fmt.Fprintln(w, "the schema fence is not installed")
		return err
	}
	pairs := []string{
		"version", fmt.Sprintf("%d of %d", s.Version, s.Latest),
		"cluster", orElse(s.Cluster, "none yet: pinned by the first ticket"),
		"proxy roles", orElse(strings.Join(s.ProxyRoles, ", "), "none"),
		"floors", strconv.FormatInt(s.Floors, 10),
		"bindings", strconv.FormatInt(s.Bindings, 10),
	}
	if s.Folded > 0 {
		pairs = append(pairs, "folded floor", strconv.FormatUint(s.Folded, 10))
	}
	for _, t := range s.Tables {
		pairs = append(pairs, "protected", t.Name+" by "+t.Resource)
	}
	for _, p := range s.Problems {
		pairs = append(pairs, "problem", p)
	}
	return printPairs(w, pairs...)
}

func viewState(s fencesql.State) stateView {
	v := stateView{
		Installed: s.Installed, Version: s.Version, Latest: s.Latest, Cluster: s.Cluster, Folded: s.Folded, Sessions: []sessionView{},
		ProxyRoles: append([]string{}, s.ProxyRoles...), Floors: s.Floors, Bindings: s.Bindings,
		Tables: []tableView{}, Problems: append([]string{}, s.Problems...),
	}
	for _, one := range s.Sessions {
		v.Sessions = append(v.Sessions, sessionView{
			one.Cluster, one.Resource, one.Token, one.Shared, one.PID, one.State, one.Role, one.Application,
			one.Age.Seconds(), one.Transaction.Seconds(),
		})
	}
	for _, t := range s.Tables {
		v.Tables = append(v.Tables, tableView(t))
	}
	return v
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
