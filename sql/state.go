package fencesql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func installed(ctx context.Context, tx pgx.Tx) (bool, error) {
	var exists bool
	err := tx.QueryRow(ctx, "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace "+
		"where n.nspname = 'fence' and c.relname = 'version')").Scan(&exists)
	return exists, err
}

func readState(ctx context.Context, tx pgx.Tx) (State, error) {
	all, err := scripts()
	if err != nil {
		return State{}, err
	}
	state := State{Latest: len(all)}
	if state.Installed, err = installed(ctx, tx); err != nil || !state.Installed {
		return state, err
	}
	if state.Tables, err = protectedTables(ctx, tx); err != nil {
		return State{}, err
	}
	if state.ProxyRoles, err = proxyRoles(ctx, tx); err != nil {
		return State{}, err
	}
	if err := asOwner(ctx, tx); err != nil {
		return State{}, err
	}
	err = tx.QueryRow(ctx, `select (select coalesce(max(number), 0) from fence.version),
		coalesce((select cluster from fence.identity), ''),
		(select count(*) from fence.floor), (select count(*) from fence.binding)`).
		Scan(&state.Version, &state.Cluster, &state.Floors, &state.Bindings)
	if err != nil {
		return State{}, err
	}
	if state.Version >= viewsVersion {
		if err := readViews(ctx, tx, &state); err != nil {
			return State{}, err
		}
	}
	state.Problems, err = problems(ctx, tx, state)
	return state, err
}

// viewsVersion is the first version that has the views.
const viewsVersion = 9

func readViews(ctx context.Context, tx pgx.Tx, state *State) error {
	if err := tx.QueryRow(ctx, "select coalesce(max(folded), 0) from fence.status").Scan(&state.Folded); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `select cluster, resource, token, shared, pid, state, coalesce(role::text, ''), coalesce(application_name, ''),
			greatest(clock_timestamp() - since, '0'),
			coalesce(greatest(clock_timestamp() - transaction_since, '0'), '0')
		from fence.sessions order by since, resource, pid limit $1`, MaxSessions)
	if err != nil {
		return err
	}
	state.Sessions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Session])
	return err
}

// protectedTables are none before version 5, which brought the guard.
func protectedTables(ctx context.Context, tx pgx.Tx) ([]Table, error) {
	var guards bool
	if err := tx.QueryRow(ctx, "select pg_catalog.to_regprocedure('fence.protected()') is not null").Scan(&guards); err != nil || !guards {
		return nil, err
	}
	rows, err := tx.Query(ctx, "select name, resource, complete from fence.protected()")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Table])
}

func proxyRoles(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, `select distinct r.rolname from pg_proc p
		join pg_namespace n on n.oid = p.pronamespace
		cross join lateral aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
		where n.nspname = 'fence' and p.proname = 'bind' and a.privilege_type = 'EXECUTE' and r.rolname <> $1
		order by 1`, ownerRole)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// problems says what stands in the way of deciding, and what an operator should know.
func problems(ctx context.Context, tx pgx.Tx, state State) ([]string, error) {
	var found []string
	if state.Version < state.Latest {
		found = append(found, fmt.Sprintf("The schema has version %d of %d; run `lychgate sql install`.", state.Version, state.Latest))
	}
	for _, table := range state.Tables {
		if !table.Complete {
			found = append(found, fmt.Sprintf("The guard of %s is not complete; protect it again.", table.Name))
		}
	}
	var prepared int
	if err := tx.QueryRow(ctx, "select current_setting('max_prepared_transactions')::int").Scan(&prepared); err != nil {
		return nil, err
	}
	if prepared > 0 {
		found = append(found, "Prepared transactions are allowed: a takeover is refused while one is pending; max_prepared_transactions = 0 is advised.")
	}
	forgers, err := forgers(ctx, tx)
	if err != nil {
		return nil, err
	}
	if len(forgers) > 0 {
		found = append(found, fmt.Sprintf("Roles %s have CREATEROLE: before PostgreSQL 16 that lets them become a member of %s and undo every fence; "+
			"take it from whoever is not to be trusted with that.", strings.Join(forgers, ", "), ownerRole))
	}
	notReady, err := whyNotReady(ctx, tx, state.Cluster)
	if notReady != "" {
		found = append(found, notReady)
	}
	return found, err
}

// forgers lists the roles that can make themselves what owns the schema without being a superuser.
func forgers(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, `select quote_ident(rolname) from pg_roles where rolcreaterole and not rolsuper
		and current_setting('server_version_num')::int < 160000 order by 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func whyNotReady(ctx context.Context, tx pgx.Tx, cluster string) (string, error) {
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "select fence.require_ready($1, false)", cluster)
		return err
	})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "LG007" {
		return strings.TrimSpace(refused.Detail + " " + refused.Hint), nil
	}
	return "", err
}

func uninstall(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(lockKey)); err != nil {
		return err
	}
	if ok, err := installed(ctx, tx); err != nil || !ok {
		return err
	}
	tables, err := protectedTables(ctx, tx)
	if err != nil {
		return err
	}
	if len(tables) > 0 {
		names := make([]string, len(tables))
		for i, table := range tables {
			names[i] = table.Name
		}
		return fmt.Errorf("tables are still protected: %s; unprotect them first", strings.Join(names, ", "))
	}
	roles, err := proxyRoles(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "drop schema fence cascade"); err != nil {
		return err
	}
	for _, role := range append(roles, ownerRole) {
		if err := dropRole(ctx, tx, role); err != nil {
			return fmt.Errorf("remove the role %s: %w", role, err)
		}
	}
	return nil
}

// dropRole removes a role that Install made, unless something still depends on it.
func dropRole(ctx context.Context, tx pgx.Tx, role string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`do $do$ begin
		if exists (select from pg_roles r where r.rolname = %[1]s and shobj_description(r.oid, 'pg_authid') = %[2]s) then
			execute format('drop role %%I', %[1]s);
		end if;
	exception when dependent_objects_still_exist then null; end $do$`, quoteLiteral(role), quoteLiteral(madeByUs)))
	return err
}
