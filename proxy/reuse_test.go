//go:build linux

package proxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A proxy that starts at the addresses of one that stops takes over without a connection that is refused.
func TestRestartRefusesNoConnection(t *testing.T) {
	i, pg := newIssuer(t), appDatabase(t)
	c := configFor(i, pg)
	c.Postgres[0].Policy = "allow"
	c.Postgres[0].Listen = freeAddress(t)
	old := start(t, c)
	config, err := pgx.ParseConfig("postgres://app@" + c.Postgres[0].Listen + "/app?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var connects sync.WaitGroup
	var mu sync.Mutex
	done := 0
	var failures []error
	logs := ""
	connect := func() error {
		conn, err := net.DialTimeout("tcp", c.Postgres[0].Listen, patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err != nil { // SSLRequest
			return err
		}
		_, err = conn.Read(make([]byte, 1)) // also a farewell is an answer
		return err
	}
	for range 2 {
		connects.Go(func() {
			for ctx.Err() == nil {
				err := connect()
				mu.Lock()
				if done++; err != nil {
					failures = append(failures, err)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // spread over the restart
			}
		})
	}
	for range 3 {
		next := start(t, c)
		old.end(t)
		logs += old.log.String()
		old = next
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatalf("after the restart: %v", err)
		}
		_ = conn.Close(t.Context())
	}
	stop()
	connects.Wait()
	// Where the kernel does not steer, what has begun in the last instant is reset. Refused is nobody.
	steers := !strings.Contains(old.log.String()+logs, "may be reset")
	for _, err := range failures {
		if steers || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("of %d connects: %v", done, err)
		}
	}
	if done == 0 {
		t.Error("nobody connected")
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Where it is turned off, the address is one process's.
func TestWithoutReusePortTheAddressIsTaken(t *testing.T) {
	c := offline()
	c.ReusePort, c.Postgres[0].Listen = false, freeAddress(t)
	start(t, c)
	second, err := New(c.WithDefaults(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil {
		t.Error("two proxies listen at one address")
	}
}
