package track

import (
	"strings"
	"testing"
)

// play runs a script of one conversation: lower-case words are sent, others received.
func play(t *testing.T, script string) *Conversation {
	t.Helper()
	c := New()
	for word := range strings.FieldsSeq(script) {
		name, flag, _ := strings.Cut(word, "/")
		if kind, ok := sendable[name]; ok {
			sent := Sent{Kind: kind, Pure: strings.Contains(flag, "p"), MayCommit: strings.Contains(flag, "c")}
			sent.Hidden = strings.Contains(flag, "h")
			if strings.Contains(flag, "r") {
				sent.Instead = []byte("instead")
			}
			c.Send(sent)
			continue
		}
		var status byte
		if name[0] == 'Z' {
			status = name[1]
		}
		effect := c.Receive(name[0], flag, status)
		if want := strings.Contains(flag, "!"); want != (effect.Instead != nil) {
			t.Errorf("%s: instead %q at %s", script, effect.Instead, word)
		}
		if want := strings.Contains(flag, "?"); want != effect.Hidden {
			t.Errorf("%s: hidden %v at %s", script, effect.Hidden, word)
		}
	}
	return c
}

var sendable = map[string]Kind{
	"query": Query, "call": Call, "parse": Parse, "bind": Bind, "dstmt": DescribeStatement, "dportal": DescribePortal,
	"close": Close, "exec": Execute, "sync": Sync, "copyend": CopyEnd,
}

func TestQuietIdleBindable(t *testing.T) {
	for script, want := range map[string]string{
		"":                                   "quiet idle bindable",
		"query":                              "",
		"query T D C ZI":                     "quiet idle bindable",
		"query E ZI":                         "quiet idle bindable",
		"query query C ZI":                   "",
		"query C ZT":                         "quiet",          // something ran in it
		"query/p C/BEGIN ZT":                 "quiet bindable", // BEGIN alone
		"query/p C ZT query/p C ZT":          "quiet bindable", // and a SET of ours
		"query/p query/hp C ZI C/? ZI/?":     "quiet idle bindable",
		"query/p query/hp C ZT N S C/? ZT/?": "quiet bindable",
		"query/p query/hp query C ZI E/? ZI/? T D C ZI":                                          "quiet idle bindable",
		"exec/p parse/hp bind/hp exec/hp close/hp close/hp sync C 1/? 2/? C/? 3/? 3/? ZI":        "quiet idle bindable",
		"exec/p parse/hp bind/hp exec/hp close/hp close/hp sync E ZI":                            "quiet idle bindable",
		"exec/p parse/hp bind/hp exec/hp close/hp close/hp exec sync C 1/? 2/? C/? 3/? 3/? C ZI": "quiet idle bindable",
		"query/p C ZT query C ZT":                     "quiet",
		"query/p C ZT query C ZT query/p C ZT":        "quiet",
		"query/p C ZT query E ZE":                     "quiet",
		"query/p C ZT query C/COMMIT ZI":              "quiet idle bindable",
		"query C/COMMIT ZT":                           "quiet", // COMMIT AND CHAIN
		"parse bind exec":                             "",
		"parse bind exec 1 2 C":                       "quiet", // flushed, not synced
		"parse bind exec 1 2 C sync ZI":               "quiet idle bindable",
		"parse/p bind/p exec/p 1 2 C":                 "quiet idle bindable",
		"parse bind exec sync 1 2 E ZI":               "quiet idle bindable",
		"parse E":                                     "quiet", // skipping
		"parse E parse bind exec":                     "quiet",
		"parse E parse query sync ZI":                 "quiet idle bindable",
		"bind exec query sync 2 E ZI":                 "quiet idle bindable",
		"exec s":                                      "quiet",
		"exec I":                                      "quiet",
		"dstmt t T":                                   "quiet",
		"dstmt t n":                                   "quiet",
		"dportal T":                                   "quiet",
		"close 3":                                     "quiet idle bindable",
		"call V ZI":                                   "quiet idle bindable",
		"query G":                                     "",
		"query G copyend":                             "",
		"query G copyend C ZI":                        "quiet idle bindable",
		"query G E ZI copyend":                        "quiet idle bindable",
		"query copyend T C ZI":                        "quiet idle bindable",
		"exec sync G copyend sync C ZI":               "quiet idle bindable",
		"exec sync G":                                 "",
		"exec copyend sync G C ZI":                    "quiet idle bindable",
		"exec copyend C":                              "quiet", // it was no COPY
		"exec copyend copyend C sync ZI":              "quiet idle bindable",
		"exec G copyend sync E ZI":                    "quiet idle bindable",
		"query/r E/! ZI":                              "quiet idle bindable",
		"parse parse/r exec sync 1 E/! ZI":            "quiet idle bindable",
		"parse parse/r exec sync E ZI query/r E/! ZI": "quiet idle bindable",
		"query W":                                     "", // lost
		"ZI":                                          "",
		"C":                                           "",
		"parse 2":                                     "",
		"query N A S C ZI":                            "quiet idle bindable",
	} {
		c := play(t, script)
		var got []string
		for name, is := range map[string]bool{"quiet": c.Quiet(), "idle": c.Idle(), "bindable": c.Bindable()} {
			if is {
				got = append(got, name)
			}
		}
		for _, name := range []string{"quiet", "idle", "bindable"} {
			if strings.Contains(want, name) != strings.Contains(strings.Join(got, " "), name) {
				t.Errorf("%q: got %v, want %q", script, got, want)
			}
		}
	}
}

func TestMayCommit(t *testing.T) {
	for script, want := range map[string]bool{
		"":                               false,
		"query":                          true,
		"query/p":                        false,
		"query T D":                      true,
		"query C":                        true,
		"query C ZT query":               false,
		"query C ZT query/c":             true,
		"query C ZT query/c C/COMMIT":    true,
		"query C ZT query/c C/COMMIT ZI": false,
		"query C ZT exec":                false,
		"query C ZT exec/c sync":         true,
		"parse bind exec":                true,
		"exec C":                         false,
		"exec C sync":                    true,
		"exec/p C sync":                  false,
		// Behind a COMMIT in the same batch.
		"query C ZT exec/c exec sync C/COMMIT":      true,
		"query C ZT exec/c exec sync C/COMMIT C":    true,
		"query C ZT exec exec sync C/ROLLBACK":      true,
		"query C ZT exec/c exec sync C/COMMIT C ZI": false,
		"query C ZT query C/ROLLBACK ZT query":      false, // ROLLBACK TO
		"query G":                                   false,
		"query G copyend":                           true,
		"query/c G":                                 true,
		"query G query":                             false,
		"query/r":                                   false,
		"exec E":                                    false,
		"query W":                                   false,
		"query W copyend":                           true,
		"query W copyend C C ZI":                    false,
	} {
		if got := play(t, script).MayCommit(); got != want {
			t.Errorf("%q: got %v, want %v", script, got, want)
		}
	}
}

func TestOutcome(t *testing.T) {
	for script, want := range map[string]Outcome{
		"query C ZI":                                Committed,
		"query E ZI":                                RolledBack,
		"query C ZT":                                None,
		"query C ZT query C/COMMIT ZI":              Committed,
		"query C ZT query C/ROLLBACK ZI":            RolledBack,
		"query C ZT query E ZE query C/ROLLBACK ZI": RolledBack,
		"query C ZT query E ZI":                     RolledBack, // the COMMIT failed
		"query C ZT query C ZI":                     Unclear,    // PREPARE TRANSACTION, say
		"query C ZT query C/ROLLBACK C/COMMIT ZI":   Unclear,
		"exec C/COMMIT exec E sync ZI":              Unclear,
		"exec sync C E ZI":                          RolledBack,
		"query W C ZI":                              Committed, // nothing
		"query C ZT query C/COMMIT ZT":              Partial,   // AND CHAIN
		"query C ZT query C/ROLLBACK ZT":            Partial,
		"query C ZT query C/COMMIT C E ZE":          Partial,
		"query C ZT query C/ROLLBACK ZT query C ZT": None,
	} {
		words := strings.Fields(script)
		c := play(t, strings.Join(words[:len(words)-1], " "))
		last := words[len(words)-1]
		if got := c.Receive('Z', "", last[1]).Outcome; got != want {
			t.Errorf("%q: got %v, want %v", script, got, want)
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := New()
	for !c.Full() {
		c.Send(Sent{Kind: Sync})
	}
	if c.queue.len() != MaxOutstanding {
		t.Fatalf("%d outstanding", c.queue.len())
	}
	for range MaxOutstanding {
		c.Receive('Z', "", 'I')
	}
	if !c.Idle() || len(c.queue.ring) != 0 {
		t.Errorf("a ring of %d stays behind", len(c.queue.ring))
	}
	c.Send(Sent{Kind: Query})
	for range 1000 {
		c.Send(Sent{Kind: CopyEnd})
	}
	if c.queue.len() != 2 {
		t.Errorf("ends of a COPY pile up: %d", c.queue.len())
	}
}

func TestFloodOfRefusalsIsKeptOnce(t *testing.T) {
	c := New()
	for range 3 {
		c.Send(Sent{Kind: Query, Instead: []byte("the same")})
	}
	c.Send(Sent{Kind: Query, Instead: []byte("another")})
	if &c.instead[0][0] != &c.instead[2][0] {
		t.Error("equal refusals are kept twice")
	}
	for _, want := range []string{"the same", "the same", "the same", "another"} {
		if got := string(c.Receive('E', "", 0).Instead); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Receive('Z', "", 'I')
	}
}

// FuzzConversation plays arbitrary conversations: nothing may panic, and a conversation never claims more than it
// can know.
func FuzzConversation(f *testing.F) {
	f.Add([]byte("\x01\x05\x02\x06\x91\x90"))
	f.Fuzz(func(t *testing.T, script []byte) {
		c := New()
		received := "123nTtCIsGWEZSAN"
		for _, b := range script {
			switch {
			case b < 0x80 && !c.Full():
				s := Sent{Kind: Kind(b%10 + 1), Pure: b&0x10 != 0, MayCommit: b&0x20 != 0}
				if b&0x40 != 0 && s.Kind != Sync && s.Kind != CopyEnd { // those are never refused
					s.Instead = []byte("x")
				}
				c.Send(s)
			default:
				c.Receive(received[b%16], []string{"", "COMMIT", "ROLLBACK", "SELECT 1"}[b>>4&3], "ITE"[int(b>>4&3)%3])
			}
			if c.Idle() && !c.Quiet() || c.Bindable() && !c.Quiet() || c.Lost() && (c.Quiet() || !c.MayCommit()) {
				t.Fatalf("%x: idle %v, quiet %v, bindable %v, lost %v", script, c.Idle(), c.Quiet(), c.Bindable(), c.Lost())
			}
			refusals := 0
			for i := range c.queue.len() {
				if c.queue.at(i).is(refused) {
					refusals++
				}
			}
			if refusals != len(c.instead) {
				t.Fatalf("%x: %d refusals queued, %d kept", script, refusals, len(c.instead))
			}
		}
	})
}

func TestStreams(t *testing.T) {
	for script, want := range map[string]bool{
		"query": false, "query W": true, "query W C": true, "query W copyend": true, "query W E": false,
		"query W copyend C T C ZI": false, "query G": false, "query copyend W": true,
	} {
		c := play(t, script)
		if got := c.Streams(); got != want || c.Lost() {
			t.Errorf("%q: got %v, lost %v, want %v", script, got, c.Lost(), want)
		}
	}
}
