package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres"
)

// counted notes what a Server tells of its places.
type counted struct {
	mu     sync.Mutex
	seated int
	full   []postgres.Limit
}

func (c *counted) Seated(delta int) { c.mu.Lock(); defer c.mu.Unlock(); c.seated += delta }

func (c *counted) Full(l postgres.Limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = append(c.full, l)
}

func (c *counted) now() (int, []postgres.Limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seated, slices.Clone(c.full)
}

// limited is a proxy under caps.
func limited(w *world, caps postgres.Caps) (*proxy, *postgres.Limits, *counted) {
	limits, places := postgres.NewLimits(caps), new(counted)
	return w.proxy(func(s *settings) { s.server.Limits, s.server.Places = limits, places }), limits, places
}

func TestEachLimitRefusesAndSaysWhich(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		caps   postgres.Caps
		limit  postgres.Limit
		detail string
	}{
		"in total":        {postgres.Caps{Total: 1}, postgres.LimitTotal, "limits.connections is 1."},
		"each user":       {postgres.Caps{PerUser: 1}, postgres.LimitUser, "limits.per_user is 1."},
		"this user":       {postgres.Caps{PerUser: 5, Users: map[string]int{"app": 1}}, postgres.LimitUser, `limits.users of "app" is 1.`},
		"each database":   {postgres.Caps{PerDatabase: 1}, postgres.LimitDatabase, "limits.per_database is 1."},
		"this database":   {postgres.Caps{Databases: map[string]int{w.name: 1}}, postgres.LimitDatabase, `limits.databases of "` + w.name + `" is 1.`},
		"first the total": {postgres.Caps{Total: 1, PerUser: 1}, postgres.LimitTotal, "limits.connections is 1."},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			p, limits, places := limited(w, c.caps)
			first := p.connect(with(w.ticket("a", 1)))
			nowhere := w.proxy(func(s *settings) { // where the server is not asked, it is not missed
				s.server.Limits, s.server.Places, s.server.Upstream = limits, places, "127.0.0.1:1"
			})
			if told := nowhere.refuse("app", "53300", with(w.ticket("a", 1))); told.Detail != c.detail || told.Hint == "" {
				t.Errorf("told %+v, want the detail %q and a hint", told, c.detail)
			}
			if _, full := places.now(); !slices.Equal(full, []postgres.Limit{c.limit}) {
				t.Errorf("refused by %v, want %v", full, c.limit)
			}
			exec(t, first, "select 1")
		})
	}
	w.t = t
}

func TestNamedLimitsStandInPlaceOfTheOthers(t *testing.T) {
	w := newWorld(t)
	p, _, _ := limited(w, postgres.Caps{PerUser: 1, Users: map[string]int{"app": 0}, PerDatabase: 1, Databases: map[string]int{w.name: 3}})
	for range 3 {
		p.connect(with(w.ticket("a", 1)))
	}
	p.refuse("app", "53300", with(w.ticket("a", 1)))
}

// However a session ends, what it was counted under is free again, and nothing is kept of it.
func TestEveryEndFreesItsPlaces(t *testing.T) {
	w := newWorld(t)
	p, limits, places := limited(w, postgres.Caps{PerUser: 1, PerDatabase: 1, Total: 1})
	ends := map[string]func(){
		"a polite end":           func() { _ = p.connect(with(w.ticket("a", 1))).Close(context.Background()) },
		"a client that vanishes": func() { r := dialRaw(t, p.addr, "app", w.name, with(w.ticket("a", 1))); r.login(); r.conn.Close() },
		"while it logs in": func() {
			r := dialRaw(t, p.addr, "scram", w.name, nil)
			r.until("AuthenticationSASL")
			r.conn.Close()
		},
		"a role that is not there": func() { p.refuse("nobody", "28000", with(w.ticket("a", 1))) },
		"a backend that is ended": func() {
			conn := p.connect(with(w.ticket("a", 1)))
			exec(t, w.admin, fmt.Sprintf("select pg_terminate_backend(%d)", conn.PgConn().PID()))
		},
		"a stale ticket": func() { p.refuse("app", "LG001", with(w.ticket("b", 1))) },
	}
	fence := w.proxy(nil)
	_ = fence.connect(with(w.ticket("b", 2))).Close(t.Context())
	for name, end := range ends {
		end()
		await(t, name, func() bool {
			seated, _ := places.now()
			uses := limits.Uses(100)
			return seated == 0 && len(uses) == 1 && uses[0].Used == 0 && uses[0].Strangers == 0
		})
	}
	p.connect(with(w.ticket("a", 1)))
}

// Whoever only says that it is a user keeps at most half of that user's places.
func TestStrangersKeepNoUserOut(t *testing.T) {
	w := newWorld(t)
	p, limits, _ := limited(w, postgres.Caps{Users: map[string]int{"scram": 2}})
	stranger := dialRaw(t, p.addr, "scram", w.name, nil)
	stranger.until("AuthenticationSASL")
	again := dialRaw(t, p.addr, "scram", w.name, nil)
	if _, refused := again.next().(*pgproto3.ErrorResponse); !refused {
		t.Error("a second stranger has the user's last place")
	}
	known := dialRaw(t, p.addr, "scram", w.name, with(w.ticket("a", 1)))
	known.until("AuthenticationSASL")
	want := postgres.LimitUse{Limit: postgres.LimitUser, Name: "scram", Max: 2, Used: 2, Strangers: 1}
	if uses := limits.Uses(100); !slices.Contains(uses, want) {
		t.Errorf("got %+v, want %+v among them", uses, want)
	}
}

func TestLimitsAreSharedAndChange(t *testing.T) {
	w := newWorld(t)
	limits := postgres.NewLimits(postgres.Caps{Total: 1})
	one := w.proxy(func(s *settings) { s.server.Limits, s.server.Name = limits, "one" })
	two := w.proxy(func(s *settings) { s.server.Limits, s.server.Name = limits, "two" })
	conn := one.connect(with(w.ticket("a", 1)))
	two.refuse("app", "53300", with(w.ticket("a", 1)))
	limits.SetCaps(postgres.Caps{Total: 2})
	two.connect(with(w.ticket("a", 1)))
	limits.SetCaps(postgres.Caps{Total: 1})
	exec(t, conn, "select 1")
	two.refuse("app", "53300", with(w.ticket("a", 1)))
}
