package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/fencestore"
)

// schemaVersion is the oldest version of the schema that has what this package calls.
const schemaVersion = 7

const installHint = "Run `lychgate sql install` on the database."

// After a doubtful answer.
const (
	maxAttempts = 20
	firstPause  = 5 * time.Millisecond
	lastPause   = 250 * time.Millisecond
)

// ask runs one question until there is a clean answer: its result, or a refusal. After a warning, a lost
// connection or an unknown error it is not known what was decided; the connection is closed and the question,
// which may be repeated, is asked again until ctx is done.
func (s *Store) ask(ctx context.Context, claim fencestore.Claim, question func(context.Context, *pgx.Conn) error) error {
	var doubt error
	for attempt, pause := 1, firstPause; ; attempt, pause = attempt+1, min(2*pause, lastPause) {
		err := s.askOnce(ctx, claim, question)
		var doubtful *doubtfulError
		if !errors.As(err, &doubtful) {
			if unreachable(err) && doubt != nil {
				// It may have been decided before the database went away: not a refusal.
				return fmt.Errorf("ask the fence store about %s: %w", claim.Resource, errors.Join(doubt, errors.Unwrap(err)))
			}
			return err
		}
		doubt = doubtful.err
		if attempt == maxAttempts {
			return fmt.Errorf("ask the fence store about %s: %w", claim.Resource, doubt)
		}
		s.cfg.Logger.Warn("fence store: doubtful answer, asking again", "error", doubt)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("ask the fence store about %s: %w", claim.Resource, errors.Join(context.Cause(ctx), doubt))
		}
	}
}

// doubtfulError: it is not known what was decided, if anything.
type doubtfulError struct{ err error }

func (e *doubtfulError) Error() string { return e.err.Error() }
func (e *doubtfulError) Unwrap() error { return e.err }

// unreachableError is the cause inside of the refusal when the question was never sent.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

func unreachable(err error) bool {
	var u *unreachableError
	return errors.As(err, &u)
}

func (s *Store) askOnce(ctx context.Context, claim fencestore.Claim, question func(context.Context, *pgx.Conn) error) error {
	t := s.tenure.Load()
	if t == nil {
		return notConnected(claim, errNoServer)
	}
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return s.noneFree(ctx, t, claim, err)
		case t.isOver():
			return &doubtfulError{errOver} // to be asked anew, where the store is now
		}
		return notConnected(claim, err)
	}
	defer conn.Release() // a closed one is not taken back
	data := conn.Conn().PgConn().CustomData()
	delete(data, warningKey)
	if err = question(ctx, conn.Conn()); err != nil {
		err = classify(claim, err)
	} else if warning, ok := data[warningKey].(*pgconn.PgError); ok && !seeded.Is(seeded.WarningIsClean) {
		// A cancelled wait for a synchronous standby looks like this: committed here, perhaps nowhere else.
		err = &doubtfulError{fmt.Errorf("warning instead of a clean answer: %w", warning)}
	}
	if err == nil && t.isOver() {
		err = &doubtfulError{errOver} // what is decided on a server that was left counts nowhere
	}
	var refusal *fencestore.Refusal
	if err != nil && !errors.As(err, &refusal) {
		// pgx has closed it if it was in the middle of something; then this does nothing.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Conn().Close(closing)
	}
	return err
}

// noneFree is for a caller whose time is over before a side connection was free: nothing was asked.
func (s *Store) noneFree(ctx context.Context, t *tenure, claim fencestore.Claim, err error) error {
	stat := t.pool.Stat()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || stat.AcquiredConns() < stat.MaxConns() {
		return fmt.Errorf("wait for a side connection: %w", errors.Join(context.Cause(ctx), err))
	}
	return &fencestore.Refusal{
		Reason: fencestore.NotReady, Claim: claim, Err: &unreachableError{err},
		Detail: fmt.Sprintf("All %d side connections of the store are busy with other decisions.", stat.MaxConns()),
		Hint:   "Retry with the same ticket; where this lasts, raise store_conns or look for takeovers that hang.",
	}
}

var errNoServer = errors.New("it is not known yet which of the servers decides")

func notConnected(claim fencestore.Claim, err error) error {
	refusal := &fencestore.Refusal{
		Reason: fencestore.NotReady, Claim: claim, Err: &unreachableError{err},
		Detail: "The database cannot be reached.", Hint: "See that it runs and that the store's DSN is right.",
	}
	if errors.Is(err, errNoServer) {
		refusal.Detail, refusal.Hint = "None of the servers is known to be the one that decides.", "Retry with the same ticket, once there is a primary."
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		refusal.Detail = "The database refuses the store's log-in: " + pgErr.Message + "."
	}
	return refusal
}

// reasonOf is the one table from SQLSTATE to what the store's caller is told. Every state in it means that the
// transaction was rolled back.
func reasonOf(state string) (reason fencestore.Reason, ok bool) {
	switch state {
	case "LG001":
		return fencestore.StaleToken, true
	case "LG005",
		"40P01", // deadlock_detected
		"40001", // serialization_failure
		"55P03", // lock_not_available
		"57014": // query_canceled, also by statement_timeout
		return fencestore.TakeoverTimeout, true
	case "LG006":
		return fencestore.NotAllowed, true
	case "LG007",
		"25006": // read_only_sql_transaction
		return fencestore.NotReady, true
	case "22003": // numeric_value_out_of_range
		return fencestore.BadToken, true
	}
	return fencestore.NotReady, wantsInstall(state)
}

// wantsInstall reports the states that mean a missing or half-installed schema.
func wantsInstall(state string) bool {
	switch state {
	case "3F000", // invalid_schema_name
		"42883", // undefined_function
		"42P01", // undefined_table
		"42501": // insufficient_privilege
		return true
	}
	return false
}

func classify(claim fencestore.Claim, err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return &doubtfulError{err}
	}
	reason, ok := reasonOf(pgErr.Code)
	if !ok && severity(pgErr) == "ERROR" && pgErr.Code != planChanged {
		return fmt.Errorf("ask the fence store about %s: %w", claim.Resource, err) // rolled back, and would be again
	}
	if !ok {
		return &doubtfulError{err}
	}
	refusal := &fencestore.Refusal{Reason: reason, Claim: claim, Detail: sentence(pgErr), Hint: pgErr.Hint, Err: err}
	if wantsInstall(pgErr.Code) {
		refusal.Hint = installHint
	}
	if reason == fencestore.StaleToken {
		refusal.Floor, err = floorOf(claim, pgErr)
		if err != nil {
			return &doubtfulError{err}
		}
	}
	return refusal
}

// planChanged is feature_not_supported: "cached plan must not change result type", after an upgrade.
const planChanged = "0A000"

func severity(e *pgconn.PgError) string { return cmp.Or(e.SeverityUnlocalized, e.Severity) }

func sentence(e *pgconn.PgError) string {
	if strings.HasPrefix(e.Code, "LG") && e.Detail != "" {
		return e.Detail
	}
	return "The database says: " + e.Message + "."
}

// floorOf reads what fence.refuse_stale puts into the fields for programs.
func floorOf(claim fencestore.Claim, e *pgconn.PgError) (fencestore.Floor, error) {
	token, err := strconv.ParseUint(e.ColumnName, 10, 64)
	if err != nil {
		return fencestore.Floor{}, fmt.Errorf("floor in a refusal: %w", err)
	}
	since, err := strconv.ParseInt(e.DataTypeName, 10, 64)
	if err != nil {
		return fencestore.Floor{}, fmt.Errorf("time of the floor in a refusal: %w", err)
	}
	return fencestore.Floor{Resource: claim.Resource, Token: fencestore.Token(token), Since: time.UnixMicro(since)}, nil
}
