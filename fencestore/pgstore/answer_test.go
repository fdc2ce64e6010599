package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
)

func TestEverySQLSTATEHasItsAnswer(t *testing.T) {
	const (
		failed   = fencestore.Reason(0)   // an error, but a clear one
		doubtful = fencestore.Reason(255) // asked again
	)
	for code, want := range map[string]fencestore.Reason{
		"LG001": fencestore.StaleToken,
		"LG005": fencestore.TakeoverTimeout,
		"LG006": fencestore.NotAllowed,
		"LG007": fencestore.NotReady,
		"22003": fencestore.BadToken,
		"40P01": fencestore.TakeoverTimeout,
		"40001": fencestore.TakeoverTimeout,
		"55P03": fencestore.TakeoverTimeout,
		"57014": fencestore.TakeoverTimeout,
		"3F000": fencestore.NotReady,
		"42883": fencestore.NotReady,
		"42P01": fencestore.NotReady,
		"42501": fencestore.NotReady,
		"25006": fencestore.NotReady,
		"0A000": doubtful, // "cached plan must not change result type"
		"22012": failed,
		"42601": failed,
		"XX000": failed,
		"LG999": failed,
	} {
		claim := fencestore.Claim{Resource: "a", Token: 1}
		cause := &pgconn.PgError{Severity: "ERROR", Code: code, Message: "no", ColumnName: "7", DataTypeName: "1000000"}
		err := classify(claim, cause)
		var (
			refusal *fencestore.Refusal
			doubt   *doubtfulError
			got     fencestore.Reason
		)
		switch {
		case errors.As(err, &refusal):
			got = refusal.Reason
			if !strings.HasSuffix(refusal.Detail, ".") || refusal.Claim != claim || !errors.Is(err, cause) {
				t.Errorf("%s: refusal %+v", code, refusal)
			}
			if install := strings.Contains(refusal.Hint, "sql install"); install != wantsInstall(code) {
				t.Errorf("%s: hint %q", code, refusal.Hint)
			}
		case errors.As(err, &doubt):
			got = doubtful
		}
		if got != want {
			t.Errorf("%s: got %v (%v), want %v", code, got, err, want)
		}
		cause.Severity = "FATAL" // what is not in the table may have been decided before the session ended
		if want == failed && !errors.As(classify(claim, cause), &doubt) {
			t.Errorf("%s: a fatal one is not doubted", code)
		}
	}
	for _, err := range []error{errors.New("lost"), context.Canceled, &pgconn.PgError{Severity: "ERROR", Code: "LG001", ColumnName: "x"}} {
		var doubt *doubtfulError
		if !errors.As(classify(fencestore.Claim{}, err), &doubt) {
			t.Errorf("%v is not doubted", err)
		}
	}
}

func TestNotConnectedIsSaidInSentences(t *testing.T) {
	for _, cause := range []error{errors.New("connection refused"), &pgconn.PgError{Code: "28P01", Message: "password authentication failed"}} {
		var refusal *fencestore.Refusal
		err := notConnected(fencestore.Claim{}, cause)
		if !errors.As(err, &refusal) || !errors.Is(err, cause) {
			t.Fatalf("got %v", err)
		}
		for _, s := range []string{refusal.Detail, refusal.Hint} {
			if s == "" || strings.ToUpper(s[:1]) != s[:1] || !strings.HasSuffix(s, ".") {
				t.Errorf("%q is not a sentence", s)
			}
		}
	}
}
