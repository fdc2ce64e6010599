package fencesql

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed scripts/*.sql
var embedded embed.FS

// script is one version of the schema. A published script is never changed; a change is a new script.
type script struct {
	number int
	name   string
	text   string
}

var scriptName = regexp.MustCompile(`^([0-9]{4})_([a-z_]+)\.sql$`)

// scripts are the embedded ones in order; their numbers are 1, 2, 3 …
func scripts() ([]script, error) {
	entries, err := fs.ReadDir(embedded, "scripts") // sorted by name
	if err != nil {
		return nil, err
	}
	var all []script
	for i, entry := range entries {
		m := scriptName.FindStringSubmatch(entry.Name())
		if m == nil {
			return nil, fmt.Errorf("script %s: its name is not number_name.sql", entry.Name())
		}
		number, err := strconv.Atoi(m[1])
		if err != nil || number != i+1 {
			return nil, fmt.Errorf("script %s: want number %04d", entry.Name(), i+1)
		}
		text, err := fs.ReadFile(embedded, "scripts/"+entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, script{number, m[2], planted(string(text))})
	}
	return all, nil
}

// ownerRole owns everything in the schema. It cannot log in.
const ownerRole = "fence_owner"

// madeByUs marks the roles that Install made, so that Uninstall removes no other.
const madeByUs = "made by lychgate sql install"

// lockKey is the advisory lock that installers of one database take: "lychgate" in ASCII.
const lockKey = 0x6c79636867617465

func install(ctx context.Context, tx pgx.Tx, opts Options) error {
	all, err := scripts()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(lockKey)); err != nil {
		return err
	}
	if err := prepareRoles(ctx, tx, opts.ProxyRole); err != nil {
		return err
	}
	if err := prepareSchema(ctx, tx); err != nil {
		return err
	}
	if err := upgrade(ctx, tx, all); err != nil {
		return err
	}
	if err := letIn(ctx, tx, opts.ProxyRole); err != nil {
		return err
	}
	if opts.Cluster == "" {
		return nil
	}
	// The row stays as it is when it names a cluster already; another one is refused by the check.
	_, err = tx.Exec(ctx, "select fence.require_ready($1, true)", opts.Cluster)
	return err
}

// prepareRoles makes what is missing. Roles are shared by all databases of the server, so another
// installation may make them at the same moment: that is no error.
func prepareRoles(ctx context.Context, tx pgx.Tx, proxyRole string) error {
	create := `do $do$ begin
		execute format('create role %%I %s', %s);
		execute format('comment on role %%I is %%L', %[2]s, %s);
	exception when duplicate_object or unique_violation then null; end $do$`
	for _, r := range []struct{ name, options string }{{ownerRole, "nologin"}, {proxyRole, "login"}} {
		var exists bool
		if err := tx.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", r.name).Scan(&exists); err != nil {
			return err
		}
		if exists {
			continue
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(create, r.options, quoteLiteral(r.name), quoteLiteral(madeByUs))); err != nil {
			return fmt.Errorf("make the role %s: %w", r.name, err)
		}
	}
	return giveRights(ctx, tx)
}

// giveRights lets the owner see and end sessions, and lets an administrator who is no superuser act as the owner. What is
// there already is not granted again: whoever installs a second time may not be allowed to.
func giveRights(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `do $$ declare
		v_role name;
	begin
		foreach v_role in array array['pg_signal_backend', 'pg_read_all_stats'] loop
			if not pg_has_role('`+ownerRole+`', v_role, 'USAGE') then
				execute format('grant %I to `+ownerRole+`', v_role);
			end if;
		end loop;
		if not pg_has_role('`+ownerRole+`', 'USAGE') then -- a superuser has every role
			execute format('grant `+ownerRole+` to %I', current_user);
		end if;
	end $$`)
	return err
}

// prepareSchema makes the schema and the list of versions, and goes on as their owner.
func prepareSchema(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "create schema if not exists fence authorization "+ownerRole); err != nil {
		return err
	}
	var owner string
	err := tx.QueryRow(ctx, "select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'fence'").Scan(&owner)
	if err != nil {
		return err
	}
	if owner != ownerRole {
		return fmt.Errorf("there is a schema fence that is not ours: it belongs to %s", owner)
	}
	if err := asOwner(ctx, tx); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `create table if not exists fence.version (
		number integer primary key, name text not null, installed timestamptz not null default clock_timestamp())`)
	return err
}

func asOwner(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "set local role "+ownerRole)
	return err
}

const lockNotAvailable = "55P03"

func upgrade(ctx context.Context, tx pgx.Tx, all []script) error {
	var version int
	if err := tx.QueryRow(ctx, "select coalesce(max(number), 0) from fence.version").Scan(&version); err != nil {
		return err
	}
	if version > len(all) {
		return fmt.Errorf("the database has version %d, this program knows up to %d: use a newer lychgate", version, len(all))
	}
	for _, s := range all[version:] {
		// The simple protocol runs a script of many statements inside our transaction.
		if _, err := tx.Conn().PgConn().Exec(ctx, s.text).ReadAll(); err != nil {
			var pgErr *pgconn.PgError
			if errors.As(err, &pgErr) && pgErr.Code == lockNotAvailable {
				err = fmt.Errorf("transactions that have written to a protected table are open; try again when they have ended: %w", err)
			}
			return fmt.Errorf("script %d (%s): %w", s.number, s.name, err)
		}
		if _, err := tx.Exec(ctx, "insert into fence.version (number, name) values ($1, $2)", s.number, s.name); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `insert into fence.identity (system, timeline, database)
		select system, timeline, database from fence.here() on conflict do nothing`)
	return err
}

// letIn grants the proxy role the functions that a store calls, and nothing else.
func letIn(ctx context.Context, tx pgx.Tx, proxyRole string) error {
	role := pgx.Identifier{proxyRole}.Sanitize()
	_, err := tx.Conn().PgConn().Exec(ctx, `grant usage on schema fence to public;
		grant execute on function fence.bind(text, text, bigint, text, integer, bigint, integer),
			fence.bind(text, text, bigint, text, integer, bigint, integer, boolean),
			fence.unbind(text, text, integer, bigint, boolean), fence.sweep(), fence.floor_of(text, text),
			fence.bindings(text, integer), fence.check_ready(text), fence.fold(text, bigint, integer) to `+role).ReadAll()
	return err
}

// quoteLiteral is for the role's name inside DO, which takes no parameters.
func quoteLiteral(s string) string {
	quoted := "'"
	for _, r := range s {
		if r == '\'' {
			quoted += "'"
		}
		quoted += string(r)
	}
	return quoted + "'"
}
