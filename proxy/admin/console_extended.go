package admin

import (
	"context"

	"github.com/jackc/pgx/v5/pgproto3"
)

// extended answers one message of the extended protocol, which drivers speak. There are no parameters, and all columns are
// text, which is the same bytes in both formats.
func (s *consoleSession) extended(ctx context.Context, message pgproto3.FrontendMessage) error {
	switch m := message.(type) {
	case *pgproto3.Parse:
		return s.parse(m)
	case *pgproto3.Bind:
		c, ok := s.statements[m.PreparedStatement]
		switch {
		case !ok:
			return consoleErr(stateNoStatement, "prepared statement %q does not exist", m.PreparedStatement)
		case len(m.Parameters) > 0:
			return consoleErr(stateProtocol, "the console takes no parameters: write the value into the statement")
		}
		if err := keep(s.portals, m.DestinationPortal, c); err != nil {
			return err
		}
		s.backend.Send(&pgproto3.BindComplete{})
	case *pgproto3.Describe:
		return s.describe(m)
	case *pgproto3.Execute:
		c, ok := s.portals[m.Portal]
		if !ok {
			return consoleErr(stateNoPortal, "portal %q does not exist", m.Portal)
		}
		if c.empty() {
			s.backend.Send(&pgproto3.EmptyQueryResponse{})
			return nil
		}
		return s.execute(ctx, c)
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(s.statements, m.Name)
		} else {
			delete(s.portals, m.Name)
		}
		s.backend.Send(&pgproto3.CloseComplete{})
	default:
		return consoleErr(stateProtocol, "the console does not take this kind of message")
	}
	return nil
}

func (s *consoleSession) parse(m *pgproto3.Parse) error {
	commands, err := parseCommands(m.Query)
	switch {
	case err != nil:
		return err
	case len(commands) > 1:
		return consoleErr(stateSyntax, "cannot insert multiple commands into a prepared statement")
	}
	c := command{}
	if len(commands) == 1 {
		c = commands[0]
	}
	if err := keep(s.statements, m.Name, c); err != nil {
		return err
	}
	s.backend.Send(&pgproto3.ParseComplete{})
	return nil
}

// keep puts a command under a name, within the bound.
func keep(in map[string]command, name string, c command) error {
	if _, has := in[name]; !has && len(in) >= maxPrepared {
		return consoleErr(stateLimit, "the console keeps at most %d statements", maxPrepared)
	}
	in[name] = c
	return nil
}

func (s *consoleSession) describe(m *pgproto3.Describe) error {
	c, ok := s.portals[m.Name]
	if m.ObjectType == 'S' {
		if c, ok = s.statements[m.Name]; ok {
			s.backend.Send(&pgproto3.ParameterDescription{})
		}
	}
	switch {
	case !ok:
		return consoleErr(stateNoStatement, "there is nothing of the name %q to describe", m.Name)
	case c.columns() == nil:
		s.backend.Send(&pgproto3.NoData{})
	default:
		s.backend.Send(describe(c.columns()))
	}
	return nil
}
