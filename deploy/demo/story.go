package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
)

const (
	resource = "ledger/eu"
	ttl      = 5 * time.Second // short, so that the demo ends soon
)

// story is the demo's plot. Each step checks what came out and prints one line.
type story struct {
	stage
	out     io.Writer
	start   time.Time
	a, b, c *actor
	tokens  map[string]uint64 // by worker
}

func (s *story) close() {
	for _, actor := range []*actor{s.a, s.b, s.c} {
		actor.close()
	}
	s.stage.close()
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "[%5.1fs] %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) tell(ctx context.Context) error {
	steps := []func(context.Context) error{
		s.setUp, s.meetZombie, s.takeOver, s.zombieWakes, s.loseLeader, s.bypass, s.checkTable, s.showCounters,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.say("every step came out right")
	return nil
}

// schema is the application's own; Lychgate adds its schema "fence" beside it.
const schema = `
CREATE ROLE app LOGIN;
CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text NOT NULL, entry text NOT NULL);
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger TO app;`

func (s *story) setUp(ctx context.Context) error {
	if err := s.startPostgres(ctx); err != nil {
		return err
	}
	if _, err := s.psql(ctx, "postgres", "postgres", "CREATE DATABASE app"); err != nil {
		return err
	}
	if _, err := s.psql(ctx, "postgres", "app", schema); err != nil {
		return err
	}
	dsn := s.postgres.DSN("postgres", "app")
	if err := s.lychgate(ctx, "sql", "install", "--dsn", dsn); err != nil {
		return err
	}
	if err := s.lychgate(ctx, "sql", "protect", "--dsn", dsn, "ledger", "account"); err != nil {
		return err
	}
	s.say("PostgreSQL is up; table ledger is protected: its column account names the resource")
	if err := s.startCoordinators(ctx, ttl); err != nil {
		return err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.say("three coordinator nodes are up, %s leads", leader.id)
	if err := s.startProxy(ctx); err != nil {
		return err
	}
	s.say("the proxy is up in front of PostgreSQL")
	return nil
}

func (s *story) appDSN() string { return "postgres://app@" + s.proxyAddr + "/app" }

// enter starts a worker that takes the lock and connects through the proxy.
func (s *story) enter(name string, wait time.Duration) (*actor, answer, error) {
	actor, err := s.actor(name, resource, ttl)
	if err != nil {
		return actor, answer{}, err
	}
	got, err := actor.ask(request{Do: "acquire", Wait: wait})
	if err != nil {
		return actor, answer{}, fmt.Errorf("worker %s did not get the lock: %w", name, err)
	}
	_, err = actor.ask(request{Do: "connect", DSN: s.appDSN()})
	return actor, got, err
}

func (s *story) meetZombie(context.Context) error {
	var got answer
	var err error
	if s.a, got, err = s.enter("A", 0); err != nil {
		return err
	}
	s.tokens["A"] = got.Token
	s.say("A takes %s for %s and gets token %d", resource, ttl, got.Token)
	for _, sql := range []string{"BEGIN;", insert("A")} {
		if _, err := s.a.ask(request{Do: "sql", SQL: sql}); err != nil {
			return fmt.Errorf("worker A could not write: %w", err)
		}
	}
	s.say("A writes through the proxy with plain psql; its transaction stays open")
	if err := s.a.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.say("A is stopped (SIGSTOP): it renews nothing, and its lease runs out")
	return nil
}

func insert(holder string) string {
	return fmt.Sprintf("INSERT INTO ledger (account, entry) VALUES ('%s', 'by %s');", resource, holder)
}

func (s *story) takeOver(context.Context) error {
	var got answer
	var err error
	if s.b, got, err = s.enter("B", 30*time.Second); err != nil {
		return err
	}
	s.tokens["B"] = got.Token
	if got.Token <= s.tokens["A"] {
		return fmt.Errorf("worker B's token %d is not above A's %d", got.Token, s.tokens["A"])
	}
	s.say("B waited for the lock and gets token %d", got.Token)
	begin := time.Now()
	if _, err := s.b.ask(request{Do: "sql", SQL: insert("B")}); err != nil {
		return fmt.Errorf("worker B could not write: %w", err)
	}
	s.say("B has written, %d ms after it got the lock: it did not wait for A's open transaction", time.Since(begin).Milliseconds())
	return nil
}

// refused makes sure that err is a refusal of the given kind, and returns its first line.
func refused(err error, code string) (string, error) {
	if err == nil {
		return "", fmt.Errorf("it was let in; expected %s", code)
	}
	if !strings.Contains(err.Error(), code) {
		return "", fmt.Errorf("expected %s, got: %w", code, err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if strings.Contains(line, code) {
			return strings.TrimSpace(line), nil
		}
	}
	return "", errors.New("unreachable")
}

func (s *story) zombieWakes(context.Context) error {
	if err := s.a.signal(syscall.SIGCONT); err != nil {
		return err
	}
	_, err := s.a.ask(request{Do: "sql", SQL: "COMMIT;"})
	line, err := refused(err, "LG001")
	if err != nil {
		return fmt.Errorf("worker A's commit: %w", err)
	}
	s.say("A resumes and commits; refused: %s", line)
	if _, err := s.a.ask(request{Do: "connect", DSN: s.appDSN()}); err != nil {
		return err
	}
	_, err = s.a.ask(request{Do: "sql", SQL: insert("A again")})
	if line, err = refused(err, "LG001"); err != nil {
		return fmt.Errorf("worker A's second connection: %w", err)
	}
	s.say("A reconnects with its old ticket; refused: %s", line)
	return nil
}

func (s *story) loseLeader(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	leader.end(syscall.SIGKILL)
	s.say("the leading coordinator %s is killed (SIGKILL)", leader.id)
	if _, err := s.b.ask(request{Do: "renewed"}); err != nil {
		return fmt.Errorf("worker B lost its lease with the leader: %w", err)
	}
	s.say("B's next renewal is accepted, %d ms after the kill; it lost nothing", time.Since(begin).Milliseconds())
	if _, err := s.b.ask(request{Do: "release"}); err != nil {
		return fmt.Errorf("worker B could not release: %w", err)
	}
	var got answer
	if s.c, got, err = s.enter("C", 0); err != nil {
		return err
	}
	s.tokens["C"] = got.Token
	if got.Token <= s.tokens["B"] {
		return fmt.Errorf("worker C's token %d is not above B's %d", got.Token, s.tokens["B"])
	}
	if _, err := s.c.ask(request{Do: "sql", SQL: insert("C")}); err != nil {
		return fmt.Errorf("worker C could not write: %w", err)
	}
	s.say("B releases, C acquires, gets token %d and writes", got.Token)
	return nil
}

func (s *story) bypass(ctx context.Context) error {
	_, err := s.psql(ctx, "app", "app", insert("somebody past the proxy"))
	line, err := refused(err, "LG002") // this session holds nothing
	if err != nil {
		return fmt.Errorf("a direct login: %w", err)
	}
	s.say("a direct login writes past the proxy; the table's guard refuses: %s", line)
	return nil
}

func (s *story) checkTable(ctx context.Context) error {
	got, err := s.psql(ctx, "postgres", "app", "SELECT string_agg(entry, ', ' ORDER BY id) FROM ledger")
	if err != nil {
		return err
	}
	if want := "by B, by C"; got != want {
		return fmt.Errorf("the table holds %q, want %q", got, want)
	}
	s.say("the table holds exactly the rightful writes: %s", got)
	return nil
}

func (s *story) showCounters(ctx context.Context) error {
	body, err := get(ctx, "http://"+s.adminAddr+"/metrics")
	if err != nil {
		return err
	}
	var shown bool
	for line := range strings.SplitSeq(string(body), "\n") {
		if strings.HasPrefix(line, "lychgate_fencing_rejections_total") && !strings.HasSuffix(line, " 0") {
			s.say("metrics: %s", line)
			shown = true
		}
	}
	if !shown {
		return errors.New("the metrics endpoint counts no fencing rejection")
	}
	return nil
}
