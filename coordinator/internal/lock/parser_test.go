package lock_test

import (
	"crypto/ed25519"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// parser reads the commands of scenarios. NAME=VALUE options may follow each; by=IDENTITY is "me" unless given, and a
// lease has the name of the request that took it unless lease=NAME says otherwise.
//
//	acquire CLIENT/ID RESOURCE [wait= call= ttl= asof= seq= ack= mode= owner= lease= by=]
//	renew LEASE [ttl= by=]        release LEASE [by=]
//	cancel CLIENT/ID [asof= by=]  detach CLIENT/ID call= [by=]
//	break RESOURCE                leader NODE term=
//	key NODE ID                   tick
//	renew-many LEASE… [by=]       kill CLIENT/ID [lease= ahead=CLIENT/ID by=]
//	policy prefix|tenant [NAME] [default= min= max= hold= delay= exclusive= shared= waiters= leases= requests= rate= burst= by=]
//	unpolicy prefix|tenant [NAME] [by=]
//	version N                     retire NODE ID after=
//	member ID [peer=]             drop ID                 recover CLUSTER INCARNATION
type parser struct {
	t     *testing.T
	ids   map[string]lease.ID
	names map[lease.ID]string
}

// line is a command taken apart.
type line struct {
	p       *parser
	words   []string
	options map[string]string
}

func (p *parser) command(text string, now lock.LeaseTime) lock.Command {
	l := line{p: p, options: make(map[string]string)}
	for _, field := range strings.Fields(text) {
		if name, value, ok := strings.Cut(field, "="); ok {
			l.options[name] = value
			continue
		}
		l.words = append(l.words, field)
	}
	switch l.words[0] {
	case "acquire":
		return l.acquire(now)
	case "renew":
		return lock.Renew{Identity: l.by(), Lease: p.lease(l.word(1)), TTL: l.duration("ttl", 0)}
	case "release":
		return lock.Release{Identity: l.by(), Lease: p.lease(l.word(1))}
	case "cancel":
		client, id := l.request()
		return lock.Cancel{Identity: l.by(), Client: client, Request: id, AsOf: l.instant("asof", now), TimedOut: l.options["timed"] == "out"}
	case "detach":
		client, id := l.request()
		return lock.Detach{Identity: l.by(), Client: client, Request: id, Call: l.number("call", 0)}
	case "break":
		return lock.Break{Identity: l.by(), Resource: lease.Resource(l.word(1))}
	case "leader":
		return lock.NewLeader{Node: l.word(1), Term: l.number("term", 1)}
	case "key":
		return lock.PutKey{Node: l.word(1), KeyID: l.word(2), Public: make(ed25519.PublicKey, ed25519.PublicKeySize)}
	case "tick":
		return lock.Tick{}
	}
	if c := l.later(); c != nil {
		return c
	}
	p.t.Fatalf("unknown command %q", text)
	return nil
}

func (l line) acquire(now lock.LeaseTime) lock.Command {
	client, id := l.request()
	mode, err := lease.ParseMode(l.options["mode"])
	if err != nil {
		l.p.t.Fatal(err)
	}
	name := l.word(1)
	if given, ok := l.options["lease"]; ok {
		name = given
	}
	c := lock.Acquire{
		Identity: l.by(), Client: client, Request: id, Owner: l.options["owner"], Resource: lease.Resource(l.word(2)),
		Mode: mode, TTL: l.duration("ttl", 0), Wait: l.duration("wait", 0), Lease: l.p.lease(name),
		AsOf: l.instant("asof", now), Sequence: l.number("seq", 0), Acknowledged: l.number("ack", 0),
	}
	if c.Wait > 0 {
		c.Call = 1
	}
	c.Call = l.number("call", c.Call)
	return c
}

func (l line) word(i int) string {
	if i >= len(l.words) {
		l.p.t.Fatalf("%v: a word is missing", l.words)
	}
	return l.words[i]
}

func (l line) request() (lease.ClientID, lease.RequestID) {
	client, id, ok := strings.Cut(l.word(1), "/")
	if !ok {
		l.p.t.Fatalf("%q is not CLIENT/ID", l.word(1))
	}
	return lease.ClientID(client), lease.RequestID(id)
}

func (l line) by() lease.Identity {
	if by, ok := l.options["by"]; ok {
		return lease.Identity(by)
	}
	return "me"
}

func (l line) duration(name string, otherwise time.Duration) time.Duration {
	text, ok := l.options[name]
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		l.p.t.Fatal(err)
	}
	return d
}

func (l line) instant(name string, otherwise lock.LeaseTime) lock.LeaseTime {
	return lock.LeaseTime(l.duration(name, time.Duration(otherwise)))
}

func (l line) number(name string, otherwise uint64) uint64 {
	text, ok := l.options[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		l.p.t.Fatal(err)
	}
	return n
}

// lease is the id behind a name; "zero" is the zero id.
func (p *parser) lease(name string) lease.ID {
	if name == "zero" {
		return lease.ID{}
	}
	id, ok := p.ids[name]
	if !ok {
		id = lease.NewID(0, [14]byte{byte(len(p.ids) + 1)})
		p.ids[name], p.names[id] = id, name
	}
	return id
}
