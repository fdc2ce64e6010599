package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// AppendCall appends a call as an element of SessionRequest.calls: such elements one behind the other are a SessionRequest. An
// error says that a text is not UTF-8; out is then as it was.
func AppendCall(out []byte, call *lockpb.Call) ([]byte, error) {
	w := writer{out: out}
	at := w.open(callsField)
	w.number(idField, call.GetId())
	w.number(timeoutField, uint64(call.GetTimeout())) // as protobuf orders them
	known := true
	switch kind := call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		w.acquire(kind.Acquire)
	case *lockpb.Call_Renew:
		w.renew(kind.Renew)
	case *lockpb.Call_Release:
		inner := w.open(releaseField)
		w.text(1, kind.Release.GetLeaseId())
		w.close(inner)
	default:
		known = false
	}
	w.close(at)
	if known && !w.fault {
		return w.out, nil
	}
	raw, err := proto.Marshal(call)
	if err != nil {
		return out, fmt.Errorf("encode a call: %w", err)
	}
	out = protowire.AppendTag(out, callsField, protowire.BytesType)
	return protowire.AppendBytes(out, raw), nil
}

func (w *writer) acquire(in *lockpb.AcquireRequest) {
	at := w.open(acquireField)
	w.text(1, in.GetResource())
	w.text(2, in.GetClientId())
	w.text(3, in.GetRequestId())
	if in != nil && in.Ttl != nil {
		w.always(4, uint64(*in.Ttl))
	}
	w.number(5, uint64(in.GetWaitTimeout()))
	w.number(6, uint64(in.GetMode()))
	w.text(7, in.GetOwner())
	w.number(8, uint64(in.GetAsOf()))
	w.number(9, in.GetSequence())
	w.number(10, in.GetAcknowledged())
	w.flag(11, in.GetNoTicket())
	w.close(at)
}

func (w *writer) renew(in *lockpb.RenewRequest) {
	at := w.open(renewField)
	w.text(1, in.GetLeaseId())
	if in != nil && in.Ttl != nil {
		w.always(2, uint64(*in.Ttl))
	}
	w.close(at)
}

// ReadRequest reads a SessionRequest into request, which is empty.
func ReadRequest(b []byte, request *lockpb.SessionRequest) error {
	for rest := b; len(rest) > 0; {
		number, typ, n := protowire.ConsumeTag(rest)
		if n < 0 || number != callsField || typ != protowire.BytesType {
			request.Calls = nil
			return again(b, request)
		}
		inner, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			request.Calls = nil
			return again(b, request)
		}
		rest = rest[n+m:]
		call := readCall(string(inner))
		if call == nil {
			call = new(lockpb.Call)
			if err := proto.Unmarshal(inner, call); err != nil {
				return err
			}
		}
		request.Calls = append(request.Calls, call)
	}
	return nil
}

// again reads a message the way of all messages.
func again(b []byte, message proto.Message) error { return proto.Unmarshal(b, message) }

// readCall reads an everyday call; nil of any other.
func readCall(text string) *lockpb.Call {
	r := reader{left: text}
	var id, timeout uint64
	var kind field
	for r.more() {
		switch f := r.next(); f.number {
		case idField:
			id = r.number(f)
		case timeoutField:
			timeout = r.number(f)
		case acquireField, renewField, releaseField:
			if kind.number != 0 || !f.texts {
				return nil // protobuf would merge them
			}
			kind = f
		default:
			return nil
		}
	}
	if r.fault {
		return nil
	}
	call := readKind(kind)
	if call != nil {
		call.Id, call.Timeout = id, uint32(timeout)
	}
	return call
}

// readKind makes a call of what it is about.
func readKind(kind field) *lockpb.Call {
	r := reader{left: kind.text}
	switch kind.number {
	case acquireField:
		return r.acquire()
	case renewField:
		var c struct {
			call lockpb.Call
			kind lockpb.Call_Renew
			in   lockpb.RenewRequest
			ttl  int32
		}
		c.call.Kind, c.kind.Renew = &c.kind, &c.in
		for r.more() {
			switch f := r.next(); f.number {
			case 1:
				c.in.LeaseId = r.name(f)
			case 2:
				c.ttl = int32(r.number(f))
				c.in.Ttl = &c.ttl
			default:
				return nil
			}
		}
		return unless(r.fault, &c.call)
	case releaseField:
		var c struct {
			call lockpb.Call
			kind lockpb.Call_Release
			in   lockpb.ReleaseRequest
		}
		c.call.Kind, c.kind.Release = &c.kind, &c.in
		for r.more() {
			f := r.next()
			if f.number != 1 {
				return nil
			}
			c.in.LeaseId = r.name(f)
		}
		return unless(r.fault, &c.call)
	}
	return nil
}

func (r *reader) acquire() *lockpb.Call {
	var c struct {
		call lockpb.Call
		kind lockpb.Call_Acquire
		in   lockpb.AcquireRequest
		ttl  int32
	}
	c.call.Kind, c.kind.Acquire = &c.kind, &c.in
	for r.more() {
		switch f := r.next(); f.number {
		case 1:
			c.in.Resource = r.name(f)
		case 2:
			c.in.ClientId = r.name(f)
		case 3:
			c.in.RequestId = r.name(f)
		case 4:
			c.ttl = int32(r.number(f))
			c.in.Ttl = &c.ttl
		case 5:
			c.in.WaitTimeout = int32(r.number(f))
		case 6:
			c.in.Mode = lockpb.Mode(r.number(f))
		case 7:
			c.in.Owner = r.name(f)
		case 8:
			c.in.AsOf = int64(r.number(f))
		case 9:
			c.in.Sequence = r.number(f)
		case 10:
			c.in.Acknowledged = r.number(f)
		case 11:
			c.in.NoTicket = r.flag(f)
		default:
			return nil
		}
	}
	return unless(r.fault, &c.call)
}

// unless is a message that was read well.
func unless[T any](fault bool, message *T) *T {
	if fault {
		return nil
	}
	return message
}
