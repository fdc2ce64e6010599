package postgres_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// raw is a client that speaks the protocol message by message.
type raw struct {
	t    testing.TB
	conn net.Conn
	*pgproto3.Frontend
	key *pgproto3.BackendKeyData
}

func dialRaw(t testing.TB, addr, user, database string, params map[string]string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	r := &raw{t: t, conn: conn}
	r.begin(user, database, params)
	return r
}

// begin sends the start-up message.
func (r *raw) begin(user, database string, params map[string]string) {
	r.t.Helper()
	r.Frontend = pgproto3.NewFrontend(r.conn, r.conn)
	all := map[string]string{"user": user, "database": database}
	for k, v := range params {
		all[k] = v
	}
	r.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: all})
}

// raw logs in as app through the proxy.
func (p *proxy) raw(params map[string]string) *raw {
	p.t.Helper()
	r := dialRaw(p.t, p.addr, "app", p.world.name, params)
	r.login()
	return r
}

func (r *raw) login() {
	r.t.Helper()
	for {
		switch m := r.next().(type) {
		case *pgproto3.BackendKeyData:
			copied := *m
			r.key = &copied
		case *pgproto3.ErrorResponse:
			r.t.Fatalf("log-in: %s %s", m.Code, m.Message)
		case *pgproto3.ReadyForQuery:
			return
		}
	}
}

func (r *raw) send(messages ...pgproto3.FrontendMessage) {
	r.t.Helper()
	for _, m := range messages {
		r.Send(m)
	}
	if err := r.Flush(); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

func (r *raw) next() pgproto3.BackendMessage {
	r.t.Helper()
	m, err := r.Receive()
	if err != nil {
		r.t.Fatalf("receive: %v", err)
	}
	return m
}

// until reads up to a message whose line begins with a text, and describes all that came, one line each.
func (r *raw) until(last string) string {
	r.t.Helper()
	var lines []string
	for {
		line := describe(r.next())
		lines = append(lines, line)
		if strings.HasPrefix(line, last) {
			return strings.Join(lines, "\n")
		}
	}
}

// describe is a message as text, without what differs between two servers' sessions.
func describe(m pgproto3.BackendMessage) string {
	switch m := m.(type) {
	case *pgproto3.ReadyForQuery:
		return fmt.Sprintf("Ready %c", m.TxStatus)
	case *pgproto3.ErrorResponse:
		return fmt.Sprintf("Error %s %s %s", m.Severity, m.Code, m.Message)
	case *pgproto3.NoticeResponse:
		return fmt.Sprintf("Notice %s %s", m.Code, m.Message)
	case *pgproto3.CommandComplete:
		return "Complete " + string(m.CommandTag)
	case *pgproto3.DataRow:
		var values []string
		for _, v := range m.Values {
			values = append(values, string(v))
		}
		return "Row " + strings.Join(values, "|")
	case *pgproto3.RowDescription:
		return fmt.Sprintf("Columns %d", len(m.Fields))
	case *pgproto3.CopyData:
		return "Data " + string(m.Data)
	case *pgproto3.NotificationResponse:
		return "Notification " + m.Channel + " " + m.Payload
	case *pgproto3.FunctionCallResponse:
		return "Function " + string(m.Result)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3.")
}
