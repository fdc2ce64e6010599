package postgres_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/proxy/gate"
)

// A client whose setting fence.ticket is set believes that it is fenced. Whatever it does with transactions, alone or
// in pipelines, the session is bound then.
func TestSessionIsBoundWhileItsSettingIsSet(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	set := "SET fence.ticket = '" + w.ticket("r", 1) + "'"
	shared := "SET fence.ticket = '" + w.shared("s", 1, 1) + "'" // the proxy then sends statements of its own
	texts := []string{
		"BEGIN", "BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "RELEASE a", "COMMIT AND CHAIN",
		"ROLLBACK AND CHAIN", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "SELECT 1", "SELECT 1/0", "RESET fence.ticket",
		"RESET fence.ticket", set, set, set, strings.Replace(set, "SET", "SET LOCAL", 1), "BEGIN; SAVEPOINT a",
		shared, shared, strings.Replace(shared, "SET", "SET LOCAL", 1),
	}
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		conn := p.connect(nil)
		var done []string
		for range 60 {
			batch := []string{texts[random.IntN(len(texts))]}
			if random.IntN(3) == 0 {
				for range random.IntN(4) {
					batch = append(batch, texts[random.IntN(len(texts))])
				}
				runBatch(t, conn, batch)
			} else {
				runBatch(t, conn, nil)
				_ = try(conn, batch[0]) // many fail, as they should
			}
			done = append(done, strings.Join(batch, " | "))
			if conn.IsClosed() {
				t.Fatalf("seed %d: the session ended: %v", seed, done)
			}
			if random.IntN(3) == 0 {
				checkBound(t, w, conn, seed, done)
			}
		}
		_ = conn.Close(t.Context())
	}
}

// runBatch sends statements as one pipeline with one Sync.
func runBatch(t *testing.T, conn *pgx.Conn, batch []string) {
	t.Helper()
	pipe := conn.PgConn().StartPipeline(t.Context())
	for _, text := range batch {
		pipe.SendQueryParams(text, nil, nil, nil, nil)
	}
	if err := pipe.Sync(); err != nil {
		t.Fatal(err)
	}
	var refused *pgconn.PgError
	if err := pipe.Close(); err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
}

func checkBound(t *testing.T, w *world, conn *pgx.Conn, seed uint64, done []string) {
	t.Helper()
	result, err := conn.PgConn().Exec(t.Context(), "SELECT current_setting('fence.'||chr(116)||'icket', true)").ReadAll()
	if err != nil {
		return // in a transaction that has failed
	}
	if string(result[0].Rows[0][0]) == "" {
		return
	}
	var bound bool
	err = w.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM fence.binding WHERE pid = $1)", conn.PgConn().PID()).Scan(&bound)
	if err != nil {
		t.Fatal(err)
	}
	if !bound {
		t.Fatalf("seed %d: fence.ticket is set and the session is not bound:\n%s", seed, strings.ReplaceAll(strings.Join(done, "\n"), "eyJ", "…"))
	}
}
