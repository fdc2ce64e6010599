package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
)

// What dev makes in the database.
const (
	appDatabase = "app"
	appRole     = "app"
	madeByDev   = "made by lychgate dev"
)

// adoptTimeout bounds the end of sessions that an earlier dev may have left.
const adoptTimeout = 10 * time.Second

// database is what the other parts need to know of the prepared database.
type database struct {
	upstream    string // for the proxy: host:port, or /folder:port
	store       string // connection string of the proxy's role
	direct      string // connection string of the app's role that goes round the proxy
	superuser   string // connection string of the superuser, without a password
	appPassword string
}

// prepare makes the database app with its roles, the fence and a protected demo table; what is there stays.
// dsn is a superuser's. On a throw-away server everybody on the machine is trusted; elsewhere the roles get
// passwords, new ones each time.
func prepare(ctx context.Context, dsn string, throwAway bool, cluster string) (database, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return database{}, err
	}
	var proxyPassword, appPassword string
	if !throwAway {
		proxyPassword, appPassword = rand.Text(), rand.Text()
	}
	err = with(ctx, config, func(conn *pgx.Conn) error {
		if err := makeRole(ctx, conn, fencesql.DefaultProxyRole, proxyPassword); err != nil {
			return err
		}
		if err := makeRole(ctx, conn, appRole, appPassword); err != nil {
			return err
		}
		return makeDatabase(ctx, conn)
	})
	if err != nil {
		return database{}, err
	}
	config.Database = appDatabase
	err = with(ctx, config, func(conn *pgx.Conn) error {
		if err := installFence(ctx, conn, cluster); err != nil {
			return err
		}
		return makeDemo(ctx, conn)
	})
	if err != nil {
		return database{}, err
	}
	return database{
		upstream:    net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))),
		store:       connString(config, fencesql.DefaultProxyRole, proxyPassword),
		direct:      connString(config, appRole, appPassword),
		superuser:   connString(config, config.User, ""),
		appPassword: appPassword,
	}, nil
}

func with(ctx context.Context, config *pgx.ConnConfig, fn func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(fn(conn), conn.Close(context.WithoutCancel(ctx)))
}

// makeRole makes a role that may log in, or takes the one that an earlier dev has made. It changes nobody
// else's.
func makeRole(ctx context.Context, conn *pgx.Conn, role, password string) error {
	var exists, ours bool
	err := conn.QueryRow(ctx, "SELECT count(*) > 0, coalesce(bool_or(shobj_description(oid, 'pg_authid') = $2), false) FROM pg_roles WHERE rolname = $1",
		role, madeByDev).Scan(&exists, &ours)
	switch {
	case err != nil:
		return err
	case exists && !ours:
		return fmt.Errorf("role %q exists and was not %s: use another server", role, madeByDev)
	}
	name := pgx.Identifier{role}.Sanitize()
	statements := "ALTER ROLE " + name + " LOGIN"
	if !exists {
		statements = "CREATE ROLE " + name + " LOGIN; COMMENT ON ROLE " + name + " IS '" + madeByDev + "'"
	}
	if password != "" { // rand.Text has letters and digits only
		statements += "; ALTER ROLE " + name + " PASSWORD '" + password + "'"
	}
	return exec(ctx, conn, statements)
}

func makeDatabase(ctx context.Context, conn *pgx.Conn) error {
	var exists, ours bool
	err := conn.QueryRow(ctx, "SELECT count(*) > 0, coalesce(bool_or(shobj_description(oid, 'pg_database') = $2), false) FROM pg_database WHERE datname = $1",
		appDatabase, madeByDev).Scan(&exists, &ours)
	switch {
	case err != nil:
		return err
	case exists && !ours:
		return fmt.Errorf("database %q exists and was not %s: use another server", appDatabase, madeByDev)
	case exists:
		return nil
	}
	if err := exec(ctx, conn, "CREATE DATABASE "+appDatabase); err != nil {
		return err
	}
	return exec(ctx, conn, "COMMENT ON DATABASE "+appDatabase+" IS '"+madeByDev+"'")
}

// installFence pins the database to the cluster. One that an earlier dev has left behind is of a cluster that
// is gone, or was: it is taken over with all that it holds.
func installFence(ctx context.Context, conn *pgx.Conn, cluster string) error {
	state, err := fencesql.Install(ctx, conn, fencesql.Options{})
	if err != nil || state.Cluster == cluster {
		return err
	}
	_, err = fencesql.Adopt(ctx, conn, cluster, adoptTimeout)
	return err
}

// makeDemo makes a table that the fence protects. It belongs to the superuser: its owner could take the
// guard off.
func makeDemo(ctx context.Context, conn *pgx.Conn) error {
	err := exec(ctx, conn, `CREATE TABLE IF NOT EXISTS ledger (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			region text NOT NULL,
			entry text NOT NULL,
			at timestamptz NOT NULL DEFAULT now());
		GRANT SELECT, INSERT, UPDATE, DELETE ON ledger TO `+appRole)
	if err != nil {
		return err
	}
	_, err = fencesql.Protect(ctx, conn, "ledger", "'ledger/' || region")
	return err
}

// exec runs statements that take no parameters.
func exec(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}

// connString is for another role on the same server and database.
func connString(config *pgx.ConnConfig, role, password string) string {
	query := url.Values{"host": {config.Host}, "port": {strconv.Itoa(int(config.Port))}, "user": {role}}
	if password != "" {
		query.Set("password", password)
	}
	if config.TLSConfig == nil {
		query.Set("sslmode", "disable")
	}
	return "postgres:///" + config.Database + "?" + query.Encode()
}
