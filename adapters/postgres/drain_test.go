package postgres_test

import (
	"strings"
	"testing"
	"time"
)

func TestDrainFinishesTransactions(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	idle := p.raw(with(w.ticket("a", 1)))
	open := p.raw(with(w.ticket("a", 1)))
	open.send(&query{String: "begin"}, &query{String: "insert into entry values (1, 'x')"})
	open.until("Complete INSERT")
	open.until("Ready")
	busy := p.raw(with(w.ticket("a", 1)))
	busy.send(&query{String: "select pg_sleep(0.5)"})
	password := dialRaw(t, p.addr, "scram", w.name, with(w.ticket("a", 1)))
	password.until("AuthenticationSASL")

	stopped := make(chan struct{})
	go func() { p.stop(); close(stopped) }()
	const farewell = "Error FATAL 57P01 terminating connection because the proxy is shutting down"
	idle.expect("Error", farewell)
	password.expect("Error", farewell)
	busy.expect("Ready", "Columns 1", "Row ", "Complete SELECT 1", "Ready I")
	busy.expect("Error", farewell)
	open.send(&query{String: "insert into entry values (2, 'x')"})
	open.expect("Ready", "Complete INSERT 0 1", "Ready T")
	select {
	case <-stopped:
		t.Error("the drain did not wait for the open transaction")
	default:
	}
	open.send(&query{String: "commit"})
	open.expect("Ready", "Complete COMMIT", "Ready I")
	open.expect("Error", farewell)
	<-stopped
	if got := w.count("true"); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
	if got := w.rows(); got != 0 {
		t.Errorf("%d bindings are left in the database", got)
	}
}

func TestDrainIsBounded(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.DrainTimeout = 300 * time.Millisecond })
	open := p.raw(with(w.ticket("a", 1)))
	open.send(&query{String: "begin"}, &query{String: "insert into entry values (1, 'x')"})
	open.until("Complete INSERT")
	open.until("Ready")
	running := p.raw(with(w.ticket("a", 1)))
	running.send(&query{String: "select pg_sleep(600)"})
	p.stop()
	if got := open.until("Error"); !strings.Contains(got, "57P01") {
		t.Errorf("got %s", got)
	}
	if got := running.until("Error"); !strings.Contains(got, "57P01") {
		t.Errorf("got %s", got)
	}
	if got := w.count("true"); got != 0 {
		t.Errorf("%d rows of a transaction that was cut", got)
	}
}
