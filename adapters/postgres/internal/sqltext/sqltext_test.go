package sqltext

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Statement{
		"":                  {Kind: Empty},
		" ;; -- ping":       {Kind: Empty},
		"/* a /* b */ c */": {Kind: Empty},
		"/* open":           {Kind: Other},
		"SELECT 1":          {},
		"begin":             {Kind: Begin},
		" BEGIN WORK ; ":    {Kind: Begin},
		"BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE": {Kind: Begin},
		"start transaction read only":                       {Kind: Begin},
		"START":                                             {},
		"BEGIN; SELECT 1":                                   {},
		"COMMIT":                                            {Kind: End, Findings: Findings{Commits: true}},
		"end work and no chain;":                            {Kind: End, Findings: Findings{Commits: true}},
		"ROLLBACK":                                          {Kind: End},
		"ROLLBACK TO a":                                     {Kind: End},
		"rollback work to savepoint a_1;":                   {Kind: End},
		"rollback to savepoint":                             {},
		"rollback to a b":                                   {},
		`rollback to "a b"`:                                 {Kind: End},
		`savepoint "a`:                                      {},
		`savepoint "a"b`:                                    {},
		`savepoint "a""b"`:                                  {},
		`savepoint ""`:                                      {},
		"SAVEPOINT PGJDBC_AUTOSAVE":                         {Kind: Savepoint},
		"release savepoint a":                               {Kind: Savepoint},
		"release a":                                         {Kind: Savepoint},
		"savepoint":                                         {},
		"DEALLOCATE ALL":                                    {Kind: Clear},
		`deallocate prepare "a b";`:                         {Kind: Clear},
		"deallocate":                                        {},
		"deallocate a; prepare a as select 1":               {},
		"DISCARD ALL":                                       {Kind: Clear},
		"reset statement_timeout ;":                         {Kind: Clear},
		"RESET SESSION AUTHORIZATION":                       {Kind: Clear},
		"reset session":                                     {},
		"SET SESSION AUTHORIZATION DEFAULT":                 {Kind: Clear},
		"set session authorization postgres":                {},
		"set session statement_timeout = 1":                 {},
		"CLOSE ALL":                                         {Kind: Clear},
		"close a":                                           {},
		"UNLISTEN *":                                        {Kind: Clear},
		"unlisten * ; select 1":                             {},
		"DISCARD ALL; COMMIT":                               {Findings: Findings{Commits: true}},
		"BEGIN;set local fence.ticket = 'a'": {
			Kind: SetTicket, Local: true, Value: "a", Ahead: "BEGIN;", Findings: Findings{Mentions: true},
		},
		"savepoint a;release b; SET fence.ticket = 'a'": {
			Kind: SetTicket, Value: "a", Ahead: "savepoint a;release b;", Findings: Findings{Mentions: true},
		},
		"savepoint a;reset fence.ticket":         {Kind: ResetTicket, Ahead: "savepoint a;", Findings: Findings{Mentions: true}},
		"discard all;set fence.ticket = 'a'":     {Findings: Findings{Mentions: true}},
		"select 1;set fence.ticket = 'a'":        {Findings: Findings{Mentions: true}},
		"COMMIT;set fence.ticket = 'a'":          {Findings: Findings{Mentions: true, Commits: true}},
		`savepoint "a;b";set fence.ticket = 'a'`: {Findings: Findings{Mentions: true}},
		"BEGIN;select 1;set fence.ticket = 'a'":  {Ahead: "BEGIN;", Findings: Findings{Mentions: true}},
		"BEGIN;set fence.ticket = 'a';select 1":  {Ahead: "BEGIN;", Findings: Findings{Mentions: true}},
		"savepoint a; select 1":                  {},
		"COMMIT PREPARED 'x'":                    {Findings: Findings{Commits: true}},
		"prepare transaction 'x'":                {Findings: Findings{Commits: true, Prepares: true}},
		"PREPARE/**/TRANSACTION''":               {Findings: Findings{Commits: true, Prepares: true}},
		"prepare x as select 1":                  {},
		"SELECT 1; /* x */ commit":               {Findings: Findings{Commits: true}},
		"SELECT 1; -- x\nEND":                    {Findings: Findings{Commits: true}},
		"committed":                              {},
		"select 'a--'; COMMIT":                   {Findings: Findings{Commits: true}},
		// What looks like a comment inside a string, and the reverse, hides nothing.
		"select 'a; /* b'; COMMIT":                        {Findings: Findings{Commits: true}},
		"select 'a; -- b'; COMMIT":                        {Findings: Findings{Commits: true}},
		"select 1 /* ; -- */ ; commit":                    {Findings: Findings{Commits: true}},
		"select 1 -- ; /*\n; end":                         {Findings: Findings{Commits: true}},
		"select 1; -- /*\rcommit":                         {Findings: Findings{Commits: true}},
		"/* ; -- */ commit /*":                            {Findings: Findings{Commits: true}},
		"select $$; /* $$; PREPARE TRANSACTION":           {Findings: Findings{Commits: true, Prepares: true}},
		"x /* ; -- */; prepare/*;--*/ transaction 'x'":    {Findings: Findings{Commits: true, Prepares: true}},
		"prepare -- ; /*\n/* '; */ transaction 'x'":       {Findings: Findings{Commits: true, Prepares: true}},
		"select 1 - -1\nend":                              {},
		"prepare x as select transaction from commit":     {},
		"insert into transaction values ('a/b', 1*2/end)": {},

		"SET fence.ticket = 'a.b.c'":           {Kind: SetTicket, Value: "a.b.c", Findings: Findings{Mentions: true}},
		"set LOCAL Fence.Ticket to 'a,b' ;":    {Kind: SetTicket, Local: true, Value: "a,b", Findings: Findings{Mentions: true}},
		"SET SESSION\tfence.ticket='it''s'":    {Kind: SetTicket, Value: "it's", Findings: Findings{Mentions: true}},
		"SET fence.ticket TO DEFAULT":          {Kind: ResetTicket, Findings: Findings{Mentions: true}},
		"SET fence.ticket = ''":                {Kind: ResetTicket, Findings: Findings{Mentions: true}},
		"RESET fence.ticket":                   {Kind: ResetTicket, Findings: Findings{Mentions: true}},
		"SHOW fence.ticket;":                   {Kind: ShowTicket, Findings: Findings{Mentions: true}},
		"SET fence.ticket = 'a'; SELECT 1":     {Findings: Findings{Mentions: true}},
		"SELECT 1; SET fence.ticket = 'a'":     {Findings: Findings{Mentions: true}},
		"SELECT set_config('fence.ticket',$1)": {Findings: Findings{Mentions: true}},
		"SET \"fence\".\"ticket\" = 'a'":       {Findings: Findings{Mentions: true}},
		"SET fence . ticket = 'a'":             {Findings: Findings{Mentions: true}},
		"SET fence/*.*/./**/ticket = 'a'":      {Findings: Findings{Mentions: true}},
		"SET fence --\n.ticket = 'a'":          {Findings: Findings{Mentions: true}},
		"SET fence.ticket = E'a'":              {Findings: Findings{Mentions: true}},
		"SET fence.ticket = 'a\\b'":            {Findings: Findings{Mentions: true}},
		"SET fence.ticket = $$a$$":             {Findings: Findings{Mentions: true}},
		"SET fence.ticket = 'a":                {Findings: Findings{Mentions: true}},
		"SET /* x */ fence.ticket = 'a'":       {Findings: Findings{Mentions: true}},
		"select 'fence' || '.' || 'ticket'":    {Findings: Findings{Mentions: true}},
		"select 'fence'\n'.ticket'":            {Findings: Findings{Mentions: true}},
		"fence fence.ticket":                   {Findings: Findings{Mentions: true}},
		"fence.fence.ticket":                   {Findings: Findings{Mentions: true}},
		"SELECT fence.tickets":                 {},
		"SELECT defence.ticket":                {},
		"SELECT fence/ .ticket":                {},
		"SELECT fence, ticket":                 {},
		"SELECT fence.tick et":                 {},
	} {
		if got := Parse([]byte(text)); got != want {
			t.Errorf("%q:\n got %+v\nwant %+v", text, got, want)
		}
	}
}

func TestScannerDoesNotDependOnPieces(t *testing.T) {
	for _, text := range []string{
		"SELECT 1; SET fence.ticket = 'a'", "xfence fence /* a /* . */ */ . \"ticket\" x", "SELECT 1; /* ; */ COMMIT ; x",
		"a; prepare -- x\n transaction 'y'", "fence.ticke fence-.ticket fence--\n.ticket",
	} {
		want := Parse([]byte(text)).Findings
		for i := range text {
			for j := i; j <= len(text); j++ {
				var s Scanner
				for _, piece := range []string{text[:i], text[i:j], text[j:]} {
					s.Write([]byte(piece))
				}
				if got := s.Findings(); got != want {
					t.Fatalf("%q cut at %d and %d: got %+v, want %+v", text, i, j, got, want)
				}
			}
		}
	}
}

func TestRedactedIsWhatItReplaces(t *testing.T) {
	for _, text := range []string{"SET fence.ticket = 'secret'", "SET LOCAL fence.ticket TO 'secret'"} {
		s := Parse([]byte(text))
		again := Parse([]byte(s.Redacted()))
		if again.Kind != SetTicket || again.Local != s.Local || strings.Contains(s.Redacted(), "secret") {
			t.Errorf("%q became %q", text, s.Redacted())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"SET fence.ticket = 'a'", "set local \"fence\" . ticket to 'a''b'", "BEGIN; fence/**/.ticket", "COMMIT AND CHAIN", "'fence' || '.ticket'"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		s := Parse([]byte(text))
		if cut >= 0 && cut <= len(text) {
			var scan Scanner
			scan.Write([]byte(text[:cut]))
			scan.Write([]byte(text[cut:]))
			if scan.Findings() != s.Findings {
				t.Fatalf("cut at %d: %+v, whole: %+v", cut, scan.Findings(), s.Findings)
			}
		}
		if strings.Contains(strings.ToLower(" "+text+" "), " fence.ticket ") && !s.Mentions {
			t.Fatal("a plain mention was overlooked")
		}
		switch s.Kind {
		case SetTicket, ResetTicket, ShowTicket:
			if !s.Mentions {
				t.Fatal("a form of fence.ticket that does not mention it")
			}
		case Begin, End, Savepoint, Clear, Empty:
			if s.Mentions {
				t.Fatal("a mention was taken for something harmless")
			}
		case Other:
		}
		if s.Kind == SetTicket && (Parse([]byte(s.Redacted())).Kind != SetTicket || len(s.Tickets()) == 0) {
			t.Fatal("the redacted form is not of the same kind")
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"select": "SELECT abalance FROM pgbench_accounts WHERE aid = 123456;",
		"begin":  "BEGIN;",
	} {
		b.Run(name, func(b *testing.B) {
			statement := []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				Parse(statement)
			}
		})
	}
}
