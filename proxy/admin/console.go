package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Bounds of the console.
const (
	maxConsoles     = 8                // clients at a time, those that log in included; more get 53300
	maxConsoleBody  = 16 << 10         // of one message
	maxPrepared     = 16               // statements of one client
	loginTimeout    = 10 * time.Second // from the start-up message to the end of the log-in
	wrongPause      = time.Second      // before a wrong password is answered: at most maxConsoles of them in that time
	consoleIdle     = time.Hour        // between two statements
	consoleAnswerIn = 10 * time.Second // for writing an answer to a client that does not read
)

// SQLSTATEs of PostgreSQL that the console uses.
const (
	stateShutdown    = "57P01"
	stateTooMany     = "53300"
	statePassword    = "28P01"
	stateIdentity    = "28000"
	stateSyntax      = "42601"
	stateRights      = "42501"
	stateProtocol    = "08P01"
	stateNoStatement = "26000"
	stateNoPortal    = "34000"
	stateNoObject    = "42704"
	stateFailed      = "55000"
	stateLimit       = "54000"
)

// Console speaks the protocol of PostgreSQL with operators: a virtual database whose few statements show and steer the
// proxy. It runs nothing that comes from a store and shows no ticket and no lease id. It is safe for concurrent use.
type Console struct {
	operator Operator
	log      *slog.Logger
	users    atomic.Pointer[map[string]ConsoleUser]
	places   chan struct{}
	dummy    verifier // of those who are no users, so that a log-in does not tell who is one
}

// NewConsole makes a console without users, to whom SetUsers lets in.
func NewConsole(operator Operator, log *slog.Logger) *Console {
	c := &Console{operator: operator, log: log, places: make(chan struct{}, maxConsoles), dummy: dummyVerifier()}
	c.users.Store(&map[string]ConsoleUser{})
	return c
}

// SetUsers replaces all users. Those that are logged in stay, unless they are users no more: then their next statement is
// refused. The users have been checked by ConsoleUser.Check.
func (c *Console) SetUsers(users []ConsoleUser) {
	byName := make(map[string]ConsoleUser, len(users))
	for _, u := range users {
		byName[u.Name] = u
	}
	c.users.Store(&byName)
}

func (c *Console) user(name string) (ConsoleUser, bool) {
	u, ok := (*c.users.Load())[name]
	return u, ok
}

// Serve speaks with one client from behind its start-up message on, and blocks until that has ended or ctx is done.
func (c *Console) Serve(ctx context.Context, conn net.Conn, address, user string) {
	s := &consoleSession{
		console: c, conn: conn, user: user, log: c.log.With("console", user, "client", address),
		backend: pgproto3.NewBackend(conn, conn), statements: map[string]command{}, portals: map[string]command{},
	}
	s.backend.SetMaxBodyLen(maxConsoleBody)
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	default:
		s.fatal(stateTooMany, fmt.Sprintf("sorry, too many clients: the console serves %d", maxConsoles))
		return
	}
	_ = conn.SetDeadline(time.Now().Add(loginTimeout)) // a dead connection fails on read
	if err := s.login(ctx); err != nil {
		s.log.Warn("console log-in refused", "cause", err.Error())
		return
	}
	s.log.Info("console log-in")
	err := s.run(ctx)
	if ctx.Err() != nil {
		s.fatal(stateShutdown, "terminating connection because the proxy is shutting down")
	} else if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.log.Debug("console ended", "cause", err.Error())
	}
}

// consoleSession is one client. One goroutine owns it.
type consoleSession struct {
	console *Console
	conn    net.Conn
	user    string
	log     *slog.Logger
	backend *pgproto3.Backend

	statements map[string]command // prepared, by name
	portals    map[string]command
	skipping   bool // up to the next Sync, after an error in the extended protocol
}

// run answers statements until the client leaves.
func (s *consoleSession) run(ctx context.Context) error {
	for {
		_ = s.conn.SetDeadline(time.Now().Add(consoleIdle)) // a dead connection fails on read
		if err := ctx.Err(); err != nil {
			return err
		}
		message, err := s.backend.Receive()
		if err != nil {
			return err
		}
		if _, leaves := message.(*pgproto3.Terminate); leaves {
			return nil
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(consoleAnswerIn))
		s.handle(ctx, message)
		if err := s.backend.Flush(); err != nil {
			return err
		}
	}
}

// handle answers one message.
func (s *consoleSession) handle(ctx context.Context, message pgproto3.FrontendMessage) {
	switch m := message.(type) {
	case *pgproto3.Query:
		s.skipping = false
		s.simple(ctx, m.String)
		s.ready()
	case *pgproto3.Sync:
		s.skipping = false
		s.ready()
	case *pgproto3.Flush:
	default:
		if s.skipping {
			return
		}
		if err := s.extended(ctx, message); err != nil {
			s.refuse(err)
			s.skipping = true
		}
	}
}

func (s *consoleSession) ready() { s.backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'}) }

// simple runs the statements of one text, up to the first that fails.
func (s *consoleSession) simple(ctx context.Context, text string) {
	commands, err := parseCommands(text)
	if err != nil {
		s.refuse(err)
		return
	}
	if len(commands) == 0 {
		s.backend.Send(&pgproto3.EmptyQueryResponse{})
	}
	for _, c := range commands {
		if columns := c.columns(); columns != nil {
			s.backend.Send(describe(columns))
		}
		if err := s.execute(ctx, c); err != nil {
			s.refuse(err)
			return
		}
	}
}

// execute runs one command and sends its rows.
func (s *consoleSession) execute(ctx context.Context, c command) error {
	user, known := s.console.user(s.user)
	switch {
	case !known:
		return consoleErr(stateRights, "%q is no user of the console any more", s.user)
	case c.steers() && user.ReadOnly:
		return consoleErr(stateRights, "permission denied: %q may only look", s.user)
	case c.steers():
		s.log.Info("console command", "command", c.verb, "argument", c.argument)
	}
	rows, err := c.run(ctx, s.console.operator)
	if err != nil {
		s.log.Warn("console command failed", "command", c.verb, "error", err)
		return err
	}
	for _, row := range rows {
		values := make([][]byte, len(row))
		for i, v := range row {
			values[i] = []byte(v)
		}
		s.backend.Send(&pgproto3.DataRow{Values: values})
	}
	s.backend.Send(&pgproto3.CommandComplete{CommandTag: []byte(c.tag())})
	return nil
}

// describe is the description of rows: everything is text.
func describe(columns []string) *pgproto3.RowDescription {
	const textOID = 25
	d := &pgproto3.RowDescription{}
	for _, name := range columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{
			Name: []byte(name), DataTypeOID: textOID, DataTypeSize: -1, TypeModifier: -1,
		})
	}
	return d
}

// refuse tells the client of an error that ends no more than its statement.
func (s *consoleSession) refuse(err error) {
	refused, ok := errors.AsType[*consoleError](err)
	if !ok {
		refused = &consoleError{code: stateFailed, message: err.Error()}
	}
	s.backend.Send(&pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: refused.code, Message: refused.message, Hint: refused.hint,
	})
}

// fatal is the last thing that a client is told.
func (s *consoleSession) fatal(code, message string) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(consoleAnswerIn))
	s.backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message})
	_ = s.backend.Flush() // only the client's connection can fail
}
