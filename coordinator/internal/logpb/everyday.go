package logpb

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// The commands that come by the thousand are written and read without a message of protobuf in between, which costs
// several times as much and half a dozen allocations. The bytes are the same. Whatever is not quite as it is written here
// goes the way of all others, which also knows what is wrong with it.

// Numbers of the fields of log.proto.
const (
	entryNow      = 1
	entryCommands = 2

	acquireKind   = 4
	renewKind     = 5
	releaseKind   = 6
	renewManyKind = 11
)

// writer puts an entry together. Fields with the zero value are left out, as in protobuf.
type writer struct {
	out   []byte
	inner []byte // the fields of the command at hand
	fault bool   // a name is not UTF-8
}

// command adds a command.
func (w *writer) command(c lock.Command) error {
	kind := w.everyday(c)
	if kind == 0 || w.fault {
		w.fault = false
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(encodeCommand(c))
		if err != nil {
			return err
		}
		w.out = protowire.AppendTag(w.out, entryCommands, protowire.BytesType)
		w.out = protowire.AppendBytes(w.out, encoded)
		return nil
	}
	w.out = protowire.AppendTag(w.out, entryCommands, protowire.BytesType)
	w.out = protowire.AppendVarint(w.out, uint64(protowire.SizeTag(kind)+protowire.SizeBytes(len(w.inner))))
	w.out = protowire.AppendTag(w.out, kind, protowire.BytesType)
	w.out = protowire.AppendBytes(w.out, w.inner)
	return nil
}

// everyday writes the fields of a command, and tells its number in Command; 0 of one that is not written here.
func (w *writer) everyday(c lock.Command) protowire.Number {
	w.inner = w.inner[:0]
	switch c := c.(type) {
	case lock.Acquire:
		w.text(1, string(c.Identity))
		w.text(2, string(c.Client))
		w.text(3, string(c.Request))
		w.text(4, c.Owner)
		w.text(5, string(c.Resource))
		w.number(6, uint64(c.Mode))
		w.number(7, uint64(c.TTL))
		w.number(8, uint64(c.Wait))
		w.id(9, &c.Lease)
		w.number(10, c.Call)
		w.number(11, uint64(c.AsOf))
		w.number(12, c.Sequence)
		w.number(13, c.Acknowledged)
		return acquireKind
	case lock.Renew:
		w.text(1, string(c.Identity))
		w.id(2, &c.Lease)
		w.number(3, uint64(c.TTL))
		return renewKind
	case lock.Release:
		w.text(1, string(c.Identity))
		w.id(2, &c.Lease)
		return releaseKind
	case lock.RenewMany:
		w.text(1, string(c.Identity))
		for i := range c.Leases {
			w.id(2, &c.Leases[i])
		}
		return renewManyKind
	default:
		return 0
	}
}

func (w *writer) text(number protowire.Number, s string) {
	if s == "" {
		return
	}
	w.fault = w.fault || !utf8.ValidString(s)
	w.inner = protowire.AppendTag(w.inner, number, protowire.BytesType)
	w.inner = protowire.AppendString(w.inner, s)
}

func (w *writer) number(number protowire.Number, n uint64) {
	if n == 0 {
		return
	}
	w.inner = protowire.AppendTag(w.inner, number, protowire.VarintType)
	w.inner = protowire.AppendVarint(w.inner, n)
}

func (w *writer) id(number protowire.Number, id *lease.ID) {
	w.inner = protowire.AppendTag(w.inner, number, protowire.BytesType)
	w.inner = protowire.AppendBytes(w.inner, id[:])
}

// reader reads the commands of an entry. Those of one client often stand together, so its names are taken over from the
// command before.
type reader struct {
	identity string
	client   string

	b  []byte // what is left of the fields of the command at hand
	ok bool   // so far it is as it is written here
}

// command reads a command; false says that it has to be read the way of all others.
func (r *reader) command(b []byte) (lock.Command, bool) {
	kind, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType {
		return nil, false
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return nil, false
	}
	r.b, r.ok = inner, true
	switch kind {
	case acquireKind:
		return r.acquire()
	case renewKind:
		return r.renew()
	case releaseKind:
		return r.release()
	case renewManyKind:
		return r.renewMany()
	default:
		return nil, false
	}
}

func (r *reader) acquire() (lock.Command, bool) {
	var c lock.Acquire
	mode, id := LeaseMode(0), false
	all := r.b
	var request, owner, resource span
	for r.more() {
		if number, n, text := r.field(); text == nil {
			switch number {
			case 6:
				mode = LeaseMode(n)
			case 7:
				c.TTL = time.Duration(n)
			case 8:
				c.Wait = time.Duration(n)
			case 10:
				c.Call = n
			case 11:
				c.AsOf = lock.LeaseTime(n)
			case 12:
				c.Sequence = n
			case 13:
				c.Acknowledged = n
			default:
				r.ok = false
			}
		} else {
			switch number {
			case 1:
				c.Identity = lease.Identity(r.same(&r.identity, text))
			case 2:
				c.Client = lease.ClientID(r.same(&r.client, text))
			case 3:
				request = r.spanOf(all, text)
			case 4:
				owner = r.spanOf(all, text)
			case 5:
				resource = r.spanOf(all, text)
			case 9:
				c.Lease, id = r.id(text), true
			default:
				r.ok = false
			}
		}
	}
	c.Mode = lease.Mode(mode)
	c.Request, c.Owner, c.Resource = namesIn(all, request, owner, resource)
	return c, r.ok && id && knownMode(mode)
}

// span is where a text is in the fields of a command; of an absent one zero.
type span struct{ from, to int }

// namesIn makes one string for all three: they stand together.
func namesIn(all []byte, request, owner, resource span) (lease.RequestID, string, lease.Resource) {
	first, end := len(all), 0
	for _, s := range [...]span{request, owner, resource} {
		if s.to > 0 {
			first, end = min(first, s.from), max(end, s.to)
		}
	}
	if end == 0 {
		return "", "", ""
	}
	text := string(all[first:end])
	cut := func(s span) string {
		if s.to == 0 {
			return ""
		}
		return text[s.from-first : s.to-first]
	}
	return lease.RequestID(cut(request)), cut(owner), lease.Resource(cut(resource))
}

// spanOf finds a text that was just read from all the fields of a command.
func (r *reader) spanOf(all, text []byte) span {
	r.ok = r.ok && utf8.Valid(text)
	to := len(all) - len(r.b)
	return span{to - len(text), to}
}

func (r *reader) renew() (lock.Command, bool) {
	var c lock.Renew
	id := false
	for r.more() {
		switch number, n, text := r.field(); {
		case number == 1 && text != nil:
			c.Identity = lease.Identity(r.same(&r.identity, text))
		case number == 2 && text != nil:
			c.Lease, id = r.id(text), true
		case number == 3 && text == nil:
			c.TTL = time.Duration(n)
		default:
			r.ok = false
		}
	}
	return c, r.ok && id
}

func (r *reader) release() (lock.Command, bool) {
	var c lock.Release
	id := false
	for r.more() {
		switch number, _, text := r.field(); {
		case number == 1 && text != nil:
			c.Identity = lease.Identity(r.same(&r.identity, text))
		case number == 2 && text != nil:
			c.Lease, id = r.id(text), true
		default:
			r.ok = false
		}
	}
	return c, r.ok && id
}

func (r *reader) renewMany() (lock.Command, bool) {
	c := lock.RenewMany{Leases: make([]lease.ID, 0, len(r.b)/(len(lease.ID{})+2))}
	for r.more() {
		switch number, _, text := r.field(); {
		case number == 1 && text != nil:
			c.Identity = lease.Identity(r.same(&r.identity, text))
		case number == 2 && text != nil:
			c.Leases = append(c.Leases, r.id(text))
		default:
			r.ok = false
		}
	}
	return c, r.ok
}

func (r *reader) more() bool { return r.ok && len(r.b) > 0 }

// field takes the next field: a number, or bytes, which are not nil.
func (r *reader) field() (number protowire.Number, n uint64, text []byte) {
	if b := r.b; len(b) > 1 && b[0] >= 1<<3 && b[0]|b[1] < 0x80 { // as most are
		number = protowire.Number(b[0] >> 3)
		switch typ, end := protowire.Type(b[0]&7), 2+int(b[1]); {
		case typ == protowire.VarintType:
			r.b = b[2:]
			return number, uint64(b[1]), nil
		case typ == protowire.BytesType && end <= len(b):
			r.b = b[end:]
			return number, 0, b[2:end]
		}
	}
	number, typ, size := protowire.ConsumeTag(r.b)
	if size < 0 {
		r.ok = false
		return 0, 0, nil
	}
	r.b = r.b[size:]
	switch typ {
	case protowire.VarintType:
		n, size = protowire.ConsumeVarint(r.b)
	case protowire.BytesType:
		text, size = protowire.ConsumeBytes(r.b)
		if text == nil {
			text = []byte{}
		}
	default:
		size = -1
	}
	if size < 0 {
		r.ok = false
		return 0, 0, nil
	}
	r.b = r.b[size:]
	return number, n, text
}

func (r *reader) text(b []byte) string {
	r.ok = r.ok && utf8.Valid(b)
	return string(b)
}

// same is text that is taken over from where it was last found, if it is the same.
func (r *reader) same(last *string, b []byte) string {
	if string(b) != *last {
		*last = r.text(b)
	}
	return *last
}

func (r *reader) id(b []byte) (id lease.ID) {
	if len(b) != len(id) {
		r.ok = false
		return id
	}
	return lease.ID(b)
}
