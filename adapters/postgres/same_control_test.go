package postgres_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// The comparison's own test: what something in between changes, drops or repeats is noticed, whichever message it is.
func TestSameMessagesNoticesAFault(t *testing.T) {
	c := newComparison(t)
	noticed := 0
	for _, one := range corpus(t) {
		if one.name != "two statements in one text" && one.name != "portals with limits" && one.name != "several syncs" {
			continue
		}
		want := c.play(t, c.direct, one.turns)
		harmless := leg{name: "nothing", addr: spoiler(t, c.direct.addr, -1, nil), startup: c.direct.startup, patience: patience}
		if difference := c.compare(t, want, harmless, one); difference != "" {
			t.Error(difference)
		}
		for name, spoil := range map[string]func(message []byte) []byte{
			"dropped": func([]byte) []byte { return nil },
			"changed": func(m []byte) []byte { m[len(m)-1] ^= 1; return m },
			"twice":   func(m []byte) []byte { return append(m, m...) },
		} {
			for nth := range min(len(want)-1, 40) - logInMessages(want) {
				broken := leg{name: name, addr: spoiler(t, c.direct.addr, nth, spoil), startup: c.direct.startup, patience: 300 * time.Millisecond}
				if c.compare(t, want, broken, one) == "" {
					t.Errorf("%s: message %d %s: not noticed", one.name, nth, name)
				}
				noticed++
			}
		}
	}
	if noticed < 60 {
		t.Errorf("only %d faults were made", noticed)
	}
}

// logInMessages counts what comes before the server is ready for the first time.
func logInMessages(told []string) int {
	for i, m := range told {
		if m[0] == 'Z' {
			return i + 1
		}
	}
	return len(told)
}

// spoiler stands in front of a server and spoils one message, the nth behind the log-in.
func spoiler(t *testing.T, upstream string, nth int, spoil func([]byte) []byte) (addr string) {
	t.Helper()
	addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
		defer context.AfterFunc(ctx, func() { l.Close() })()
		client, err := l.Accept()
		if err != nil {
			return nil
		}
		defer client.Close()
		server, err := net.Dial("tcp", upstream)
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		defer both.Wait()
		defer server.Close()
		both.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.(*net.TCPConn).CloseWrite()
		})
		defer client.Close()
		spoilOne(client, bufio.NewReader(server), nth, spoil)
		return nil
	})
	t.Cleanup(stop)
	return addr
}

func spoilOne(client io.Writer, server io.Reader, nth int, spoil func([]byte) []byte) {
	for begun, seen := false, 0; ; {
		message := make([]byte, 5)
		if _, err := io.ReadFull(server, message); err != nil {
			return
		}
		typ := message[0]
		message = append(message, make([]byte, binary.BigEndian.Uint32(message[1:])-4)...)
		if _, err := io.ReadFull(server, message[5:]); err != nil {
			return
		}
		if begun {
			if seen == nth {
				message = spoil(message)
			}
			seen++
		}
		begun = begun || typ == 'Z'
		if _, err := client.Write(message); err != nil {
			return
		}
	}
}
