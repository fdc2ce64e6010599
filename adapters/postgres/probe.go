package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// probeQuery asks the session who it is. It names every function and operator in full, since the client's role may
// have another search path.
const probeQuery = `SELECT a.pid, ` +
	`(EXTRACT(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, ` +
	`pg_catalog.pg_is_in_recovery() ` +
	`FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS a`

// probe learns the session's real name before the client's first statement, and whether it can be bound at all.
func (s *session) probe(_ context.Context) error {
	if s.replication() == physical {
		s.cannotBind = &gate.Refusal{Reason: gate.NotAllowed, Detail: "Physical replication connections cannot be bound."}
		return nil
	}
	query := wire.AppendMessage(nil, 'Q', []byte(probeQuery), []byte{0})
	if _, err := s.upstream.Write(query); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	answer, err := s.readProbe()
	if err != nil {
		return err
	}
	s.cannotBind = s.judgeProbe(answer)
	if s.cannotBind == nil {
		s.member = s.server.config.Gate.Session(s.backend.probed, s.address, func(r *gate.Refusal) { s.end(r) })
	}
	return nil
}

// probeAnswer is what the server said to the probe.
type probeAnswer struct {
	row    [][]byte
	notice wire.Notice // of an error
}

// readProbe takes the answer. What is meant for the client passes on to it.
func (s *session) readProbe() (probeAnswer, error) {
	var a probeAnswer
	for {
		typ, size, err := s.fromServer.Next()
		if err != nil {
			return a, fmt.Errorf("server: %w", err)
		}
		body, err := s.fromServer.Body()
		if err != nil {
			return a, fmt.Errorf("server: %w", err)
		}
		switch typ {
		case 'D':
			a.row = dataRow(body)
		case 'E':
			a.notice = wire.ParseNotice(body)
			if a.notice.Severity != severityError {
				return a, &failure{notice: a.notice}
			}
		case 'S', 'N', 'A':
			if typ == 'S' {
				s.noteParameter(body)
			}
			if _, err := s.client.Write(wire.AppendMessage(make([]byte, 0, size+5), typ, body)); err != nil {
				return a, fmt.Errorf("client: %w", err)
			}
		case 'Z':
			return a, nil
		}
	}
}

// dataRow copies the columns out of a DataRow's body; nil if it is not one.
func dataRow(body []byte) [][]byte {
	if len(body) < 2 {
		return nil
	}
	columns := make([][]byte, 0, 3)
	count, body := binary.BigEndian.Uint16(body), body[2:]
	for range count {
		if len(body) < 4 {
			return nil
		}
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size < 0 || int(size) > len(body) {
			return nil // NULL is no answer either
		}
		columns = append(columns, append([]byte(nil), body[:size]...))
		body = body[size:]
	}
	return columns
}

// judgeProbe says why the session cannot be bound, nil if it can.
func (s *session) judgeProbe(a probeAnswer) *gate.Refusal {
	cannot := func(detail, hint string) *gate.Refusal {
		return &gate.Refusal{Reason: gate.NotAllowed, Detail: detail, Hint: hint}
	}
	if a.notice.Code != "" {
		return cannot("The session could not be asked for its process: "+a.notice.Code+" "+a.notice.Message+".", "")
	}
	if len(a.row) != 3 {
		return cannot("The session could not be asked for its process.", "")
	}
	pid, err1 := strconv.ParseInt(string(a.row[0]), 10, 64)
	started, err2 := strconv.ParseInt(string(a.row[1]), 10, 64)
	switch {
	case err1 != nil || err2 != nil:
		return cannot("The session could not be asked for its process.", "")
	case s.backend.standby || string(a.row[2]) == "t":
		return cannot("The server is in recovery: a session on a standby survives its promotion and would write unregistered.", "Connect to the primary.")
	case len(s.backend.cancelKey) < 4:
		return cannot("The server did not name its process at log-in.", "A pooler between the proxy and the server cannot be fenced; connect the proxy to the server itself.")
	case int64(binary.BigEndian.Uint32(s.backend.cancelKey)) != pid:
		return cannot("The process named at log-in is not the one that answers: there is a pooler between the proxy and the server.", "Connect the proxy to the server itself; a pooler belongs in front of the proxy.")
	}
	s.backend.probed = fencestore.Session{PID: pid, Started: started}
	return nil
}

// goneWithin is how long a session whose process the store does not find has to show that it is over.
const goneWithin = time.Second

// explainJoin looks behind a store that does not find the session's process: most often it has ended since the probe, and the
// server says why, or hangs up. What is left is a process that is not the one that it says it is.
func (s *session) explainJoin(err error) error {
	refusal, ok := errors.AsType[*gate.Refusal](err)
	if !ok || refusal.Reason != gate.NotAllowed {
		return err
	}
	if s.tenure.Err() != nil {
		return s.server.config.Gate.Refused(s.movedRefusal())
	}
	_ = s.upstream.SetReadDeadline(time.Now().Add(goneWithin)) // a dead connection fails on read
	for {
		typ, _, lost := s.fromServer.Next()
		var timeout net.Error
		switch {
		case errors.As(lost, &timeout) && timeout.Timeout():
			return err
		case lost != nil:
			return s.server.config.Gate.Refused(&gate.Refusal{
				Reason: gate.NotReady, Claim: refusal.Claim, Err: lost,
				Detail: "The server has ended the session before it was bound.", Hint: "Retry with the same ticket.",
			})
		}
		body, lost := s.fromServer.Body()
		if lost == nil && typ == 'E' {
			if notice := wire.ParseNotice(body); notice.Severity != severityError {
				return &failure{notice: notice} // in place of the refusal
			}
		}
	}
}
