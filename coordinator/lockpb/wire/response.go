package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// AppendResponse appends a SessionResponse.
func AppendResponse(out []byte, response *lockpb.SessionResponse) ([]byte, error) {
	for _, a := range response.GetAnswers() {
		w := writer{out: out}
		if w.answer(a) {
			out = w.out
			continue
		}
		raw, err := proto.Marshal(a)
		if err != nil {
			return nil, err
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, answersField, protowire.BytesType), raw)
	}
	if len(response.GetLeaders()) == 0 {
		return out, nil
	}
	return proto.MarshalOptions{}.MarshalAppend(out, &lockpb.SessionResponse{Leaders: response.GetLeaders()})
}

// answer writes an everyday answer, and reports whether it is one.
func (w *writer) answer(a *lockpb.Answer) bool {
	at := w.open(answersField)
	w.number(idField, a.GetId())
	switch kind := a.GetKind().(type) {
	case *lockpb.Answer_Acquire:
		w.granted(kind.Acquire)
	case *lockpb.Answer_Release:
		w.released(kind.Release)
	default:
		return false
	}
	w.close(at)
	return !w.fault
}

func (w *writer) granted(in *lockpb.AcquireResponse) {
	at := w.open(acquireField)
	w.text(1, in.GetLeaseId())
	w.number(2, in.GetFencingToken())
	if t := in.GetExpiresAt(); t != nil {
		inner := w.open(3)
		w.number(1, uint64(t.GetSeconds()))
		w.number(2, uint64(t.GetNanos()))
		w.close(inner)
	}
	w.number(4, uint64(in.GetTtl()))
	w.text(5, in.GetTicket())
	w.number(6, uint64(in.GetRemaining()))
	w.text(7, in.GetResource())
	w.number(8, uint64(in.GetMode()))
	w.flag(9, in.GetRetried())
	w.number(10, uint64(in.GetAsOf()))
	w.number(11, in.GetIndex())
	w.close(at)
}

func (w *writer) released(in *lockpb.ReleaseResponse) {
	at := w.open(releaseField)
	w.text(1, in.GetResource())
	w.number(2, in.GetFencingToken())
	w.number(3, uint64(in.GetAsOf()))
	w.number(4, in.GetIndex())
	w.close(at)
}

// ReadResponse reads a SessionResponse into response, which is empty.
func ReadResponse(b []byte, response *lockpb.SessionResponse) error {
	for rest := b; len(rest) > 0; {
		number, typ, n := protowire.ConsumeTag(rest)
		if n < 0 || number != answersField || typ != protowire.BytesType {
			response.Answers = nil
			return again(b, response)
		}
		inner, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			response.Answers = nil
			return again(b, response)
		}
		rest = rest[n+m:]
		a := readAnswer(string(inner))
		if a == nil {
			a = new(lockpb.Answer)
			if err := proto.Unmarshal(inner, a); err != nil {
				return err
			}
		}
		response.Answers = append(response.Answers, a)
	}
	return nil
}

// readAnswer reads an everyday answer; nil of any other.
func readAnswer(text string) *lockpb.Answer {
	r := reader{left: text}
	var id uint64
	var kind field
	for r.more() {
		switch f := r.next(); f.number {
		case idField:
			id = r.number(f)
		case acquireField, releaseField:
			if kind.number != 0 || !f.texts {
				return nil // protobuf would merge them
			}
			kind = f
		default:
			return nil
		}
	}
	inner := reader{left: kind.text, fault: r.fault}
	var a *lockpb.Answer
	switch kind.number {
	case acquireField:
		a = inner.granted()
	case releaseField:
		a = inner.released()
	}
	if a != nil {
		a.Id = id
	}
	return a
}

func (r *reader) granted() *lockpb.Answer {
	var a struct {
		answer  lockpb.Answer
		kind    lockpb.Answer_Acquire
		out     lockpb.AcquireResponse
		expires timestamppb.Timestamp
	}
	a.answer.Kind, a.kind.Acquire = &a.kind, &a.out
	for r.more() {
		switch f := r.next(); f.number {
		case 1:
			a.out.LeaseId = r.name(f)
		case 2:
			a.out.FencingToken = r.number(f)
		case 3:
			if a.out.ExpiresAt != nil || !f.texts || !readTime(f.text, &a.expires) {
				return nil
			}
			a.out.ExpiresAt = &a.expires
		case 4:
			a.out.Ttl = int32(r.number(f))
		case 5:
			a.out.Ticket = r.name(f)
		case 6:
			a.out.Remaining = int32(r.number(f))
		case 7:
			a.out.Resource = r.name(f)
		case 8:
			a.out.Mode = lockpb.Mode(r.number(f))
		case 9:
			a.out.Retried = r.flag(f)
		case 10:
			a.out.AsOf = int64(r.number(f))
		case 11:
			a.out.Index = r.number(f)
		default:
			return nil
		}
	}
	return unless(r.fault, &a.answer)
}

func readTime(text string, t *timestamppb.Timestamp) bool {
	r := reader{left: text}
	for r.more() {
		switch f := r.next(); f.number {
		case 1:
			t.Seconds = int64(r.number(f))
		case 2:
			t.Nanos = int32(r.number(f))
		default:
			return false
		}
	}
	return !r.fault
}

func (r *reader) released() *lockpb.Answer {
	var a struct {
		answer lockpb.Answer
		kind   lockpb.Answer_Release
		out    lockpb.ReleaseResponse
	}
	a.answer.Kind, a.kind.Release = &a.kind, &a.out
	for r.more() {
		switch f := r.next(); f.number {
		case 1:
			a.out.Resource = r.name(f)
		case 2:
			a.out.FencingToken = r.number(f)
		case 3:
			a.out.AsOf = int64(r.number(f))
		case 4:
			a.out.Index = r.number(f)
		default:
			return nil
		}
	}
	return unless(r.fault, &a.answer)
}
