package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	as    *string // not nil: connections are verified as this node's
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

type verified struct {
	net.Conn
	node string
}

func (v verified) PeerNode() string { return v.node }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		if p.as != nil {
			return verified{conn, *p.as}, nil
		}
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return peerAddr("pipe") }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, errors.New("refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pair is node n1's port, and n2's that dials it.
type pair struct {
	line     *pipes
	one, two *Port
	lives    map[*Port]*chronicle
	log      *bytes.Buffer
}

// chronicle is a group's life, and what its layers tell it.
type chronicle struct {
	own, later life
	by         string
}

func (h *chronicle) life() life                    { return h.own }
func (h *chronicle) outlived(by life, node string) { h.later, h.by = by, node }
func (*chronicle) left(string)                     {}

func newPair(t *testing.T, change func(one, two *PortConfig)) *pair {
	t.Helper()
	p := &pair{line: newPipes(), log: &bytes.Buffer{}}
	members := []Member{{"n1", "one:1"}, {"n2", "two:1"}}
	one := PortConfig{Node: "n1", Members: members, Listener: p.line, Logger: slog.New(slog.NewTextHandler(p.log, nil))}
	two := PortConfig{Node: "n2", Members: members, Listener: newPipes(), Dial: p.line.dial}
	if change != nil {
		change(&one, &two)
	}
	p.one, p.two = NewPort(one), NewPort(two)
	p.lives = map[*Port]*chronicle{p.one: {}, p.two: {}}
	for _, port := range []*Port{p.one, p.two} {
		if err := port.Listen(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *pair) close() { _, _ = p.one.Close(), p.two.Close() }

func (p *pair) layers(t *testing.T, groups int) (one, two []*layer) {
	t.Helper()
	for i := range groups {
		for port, layers := range map[*Port]*[]*layer{p.one: &one, p.two: &two} {
			l, err := port.layer(uint16(i), p.lives[port])
			if err != nil {
				t.Fatal(err)
			}
			*layers = append(*layers, l)
		}
	}
	return one, two
}

func TestGroupsShareAPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		defer p.close()
		one, two := p.layers(t, 3)
		for _, i := range []int{2, 0, 1} {
			conn, err := two[i].Dial("n1", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			came, err := one[i].Accept()
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn, fmt.Sprint(i)) }()
			got := make([]byte, 1)
			if _, err := io.ReadFull(came, got); err != nil || string(got) != fmt.Sprint(i) {
				t.Fatalf("group %d got %q, %v", i, got, err)
			}
		}
		// One group's end is not the others'.
		if err := one[0].Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := two[0].Dial("n1", time.Second); err == nil || !strings.Contains(err.Error(), "not open") {
			t.Errorf("a closed group: %v", err)
		}
		if _, err := two[1].Dial("n1", time.Second); err != nil {
			t.Errorf("another group: %v", err)
		}
	})
}

func TestPeersThatAreRefused(t *testing.T) {
	named := func(name string) func() string { return func() string { return name } }
	for _, test := range []struct {
		name   string
		change func(one, two *PortConfig)
		verify string // n1's listener has verified the dialling node as
		group  uint16
		want   string
	}{
		{name: "another cluster", change: func(one, two *PortConfig) { one.Cluster, two.Cluster = named("a"), named("b") }, want: "another cluster"},
		{name: "its own id", change: func(_, two *PortConfig) { two.Node = "n1" }, want: "node id"},
		{name: "verified as another node", verify: "n3", want: "node id"},
		{name: "verified as nobody", verify: "-", want: "node id"},
		{name: "a group that is not there", group: 7, want: "not open"},
		{name: "another node's address", change: func(one, _ *PortConfig) { one.Node = "n9" }, want: `it is node "n9"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, test.change)
				defer p.close()
				if test.verify != "" {
					as := strings.TrimPrefix(test.verify, "-")
					p.line.as = &as
				}
				p.layers(t, 1)
				_, err := p.two.dial(t.Context(), "n1", test.group, p.lives[p.two])
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want one that says %q", err, test.want)
				}
			})
		})
	}
}

func TestPeersThatAreLetIn(t *testing.T) {
	named := func(name string) func() string { return func() string { return name } }
	for name, change := range map[string]func(one, two *PortConfig){
		"same cluster":                   func(one, two *PortConfig) { one.Cluster, two.Cluster = named("a"), named("a") },
		"one does not know its name yet": func(one, _ *PortConfig) { one.Cluster = named("a") },
		"one that joined later":          func(one, _ *PortConfig) { one.Members = one.Members[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, change)
				defer p.close()
				as := "n2"
				p.line.as = &as
				p.layers(t, 1)
				if _, err := p.two.dial(t.Context(), "n1", 0, p.lives[p.two]); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Nodes whose states are of two lives of the cluster do not speak to each other; one that has no state yet is let in. Who
// dials learns the other's life, and believes only the member that it meant.
func TestLivesOfTheCluster(t *testing.T) {
	for _, test := range []struct {
		name     string
		one, two life // the second dials
		node     string
		refused  string
		told     life
	}{
		{name: "the same", one: 5, two: 5},
		{name: "the first of all", one: 1, two: 1},
		{name: "who dials has no state", one: 5},
		{name: "who is dialled has no state", two: 5},
		{name: "who dials is behind", one: 5, two: 1, refused: "the cluster's life 4, and this node of life 0", told: 5},
		{name: "who dials is ahead", one: 1, two: 5, refused: "the cluster's life 0, and this node of life 4", told: 1},
		{name: "at another node's address", one: 5, two: 1, node: "n9", refused: "another life"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(one, _ *PortConfig) {
					if test.node != "" {
						one.Node = test.node
					}
				})
				defer p.close()
				p.lives[p.one].own, p.lives[p.two].own = test.one, test.two
				one, two := p.layers(t, 1)
				for range 3 {
					_, err := two[0].Dial("n1", time.Second)
					switch {
					case test.refused == "" && err != nil:
						t.Fatal(err)
					case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
						t.Fatalf("got %v, want one that says %q", err, test.refused)
					}
					if err == nil {
						if _, err := one[0].Accept(); err != nil {
							t.Error(err)
						}
					}
				}
				if got := p.lives[p.two].later; got != test.told {
					t.Errorf("who dials was told life %s, want %s", got, test.told)
				}
				if got := p.lives[p.one].later; got != 0 {
					t.Errorf("who was dialled believed a stranger: life %s", got)
				}
				synctest.Wait()
				if lines := strings.Count(p.log.String(), "another life"); lines > 1 || (lines == 0) != (test.refused == "") {
					t.Errorf("%d lines in the log:\n%s", lines, p.log)
				}
			})
		})
	}
}

// What comes from strangers costs a place for a bounded time, and one line in the log.
func TestStrangersAtThePeerPort(t *testing.T) {
	hellos := map[string]string{
		"not a hello":        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"cut":                "LGPR\x01\x00\x00",
		"a name that lies":   "LGPR\x01\x00\x00\x00\xffn2",
		"an unknown verdict": "LGPR\x01\x63\x00\x00\x02n2\x00\x00\x00\x00\x00",
		"silent":             "",
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		defer p.close()
		one, two := p.layers(t, 1)
		for name, text := range hellos {
			conn, err := p.line.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn, text) }()
			began := time.Now()
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > helloTimeout {
				t.Errorf("%s: ended after %v", name, took)
			}
		}
		synctest.Wait() // a connection is closed before that is in the log
		if lines := strings.Count(p.log.String(), "peer refused"); lines == 0 || lines > 3 {
			t.Errorf("%d lines in the log, want one in %v:\n%s", lines, repeatAfter, p.log)
		}
		if _, err := two[0].Dial("n1", time.Second); err != nil {
			t.Errorf("a peer after them: %v", err)
		}
		if conn, err := one[0].Accept(); err != nil || conn == nil {
			t.Errorf("the peer's connection: %v", err)
		}
	})
}

func TestSilentConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		defer p.close()
		_, two := p.layers(t, 1)
		for range maxGreeting {
			if _, err := p.line.dial(t.Context(), "", ""); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if _, err := two[0].Dial("n1", time.Second); err == nil {
			t.Error("one more was let in")
		}
		time.Sleep(helloTimeout) // of the bubble
		synctest.Wait()
		if _, err := two[0].Dial("n1", time.Second); err != nil {
			t.Errorf("after they had their time: %v", err)
		}
	})
}

func TestOldestConnectionOfAPeerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		defer p.close()
		one, two := p.layers(t, 1)
		go func() {
			for {
				if _, err := one[0].Accept(); err != nil {
					return
				}
			}
		}()
		var conns []net.Conn
		for range maxOfPeer + 1 {
			conn, err := two[0].Dial("n1", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			conns = append(conns, conn)
		}
		for i, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err := conn.Read(make([]byte, 1))
			if ended := errors.Is(err, io.EOF); ended != (i == 0) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
	})
}

func TestAGroupIsOpenOnceOnAPort(t *testing.T) {
	p := NewPort(PortConfig{Node: "n1", Listener: newPipes()})
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.layer(4, &chronicle{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.layer(4, &chronicle{}); err == nil {
		t.Error("a second time")
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := p.layer(5, &chronicle{}); err == nil {
		t.Error("on a closed port")
	}
}

// handshaking is a listener whose Close waits for a handshake, which asks whether somebody is a member.
type handshaking struct {
	net.Listener
	knows func(id string) bool
	known bool
}

func (l *handshaking) Close() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.known = l.knows("n2")
	}()
	err := l.Listener.Close()
	<-done
	return err
}

func TestHandshakesEndWhileThePortCloses(t *testing.T) {
	line := &handshaking{Listener: newPipes()}
	p := NewPort(PortConfig{Node: "n1", Members: []Member{{"n1", "one:1"}, {"n2", "two:1"}}, Listener: line})
	line.knows = p.Knows
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case err := <-closed:
		if err != nil || !line.known {
			t.Errorf("closed with %v, n2 is known: %v", err, line.known)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the port waits for a handshake that waits for the port")
	}
}

// The library takes what a leader calls itself for an address.
func TestALeaderCallsItselfByItsAddress(t *testing.T) {
	p := NewPort(PortConfig{Node: "n1", Members: []Member{{"n1", "one:1"}}, Listener: newPipes()})
	transport, err := newTransport(p, Config{Timing: DefaultTiming()}, &chronicle{}, newBridge(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = transport.Close() }()
	if got := string(transport.EncodePeer("n1", "old:1")); got != "one:1" {
		t.Errorf("got %q", got)
	}
	p.Know(Member{"n1", "moved:1"})
	if got := transport.DecodePeer(transport.EncodePeer("n1", "old:1")); got != raft.ServerAddress("moved:1") {
		t.Errorf("after it moved: %q", got)
	}
}

func FuzzHello(f *testing.F) {
	var b bytes.Buffer
	if err := writeHello(&b, hello{group: 3, node: "n1", cluster: "lg-x", life: 7}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("LGPR\x02\x00\x00\x00"))
	f.Add([]byte("LGPR\x01\x00\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := readHello(bytes.NewReader(text))
		if err != nil || h.verdict == refusedVersion || h.node == "" {
			return
		}
		var again bytes.Buffer
		if err := writeHello(&again, h); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, again.Bytes()) {
			t.Errorf("%q was read as %+v", text, h)
		}
	})
}
