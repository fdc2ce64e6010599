package logpb

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A snapshot is mostly clients and requests, a million of them, written while the group serves. As with everyday
// commands, their bytes are those of the messages, and there is no message.

// Numbers of the fields of log.proto.
const (
	frameClient  = 2
	frameRequest = 3
)

// saver writes the records that a snapshot has many of.
type saver struct {
	*frameWriter
	record writer // the fields of the client or request
	part   writer // those of a message in it
}

func (s *saver) client(c lock.SavedClient) error {
	w := &s.record
	w.inner = w.inner[:0]
	w.text(1, string(c.Identity))
	w.text(2, string(c.Client))
	w.number(3, c.Seq)
	w.number(4, c.Acknowledged)
	w.number(5, uint64(c.Until))
	if w.fault {
		w.fault = false
		return s.frame(&Frame{Kind: &Frame_Client{encodeClient(c)}}) // which knows what is wrong
	}
	return s.raw(frameClient, w.inner)
}

func (s *saver) request(r lock.SavedRequest) error {
	w := &s.record
	w.inner = w.inner[:0]
	w.text(1, string(r.Request))
	w.number(2, r.Seq)
	if r.Fingerprint != 0 {
		w.inner = protowire.AppendTag(w.inner, 3, protowire.Fixed64Type)
		w.inner = protowire.AppendFixed64(w.inner, r.Fingerprint)
	}
	w.number(4, uint64(r.Until))
	w.number(5, r.Sequence)
	w.number(6, uint64(r.Stage))
	switch r.Stage {
	case lock.StageWaiting:
		s.claim(r.Claim)
		s.place(r.Waiter)
	case lock.StageHeld:
		s.claim(r.Claim)
		s.lease(r.Lease)
	case lock.StageEnded, lock.StageCancelled, lock.StageForestalled:
	}
	if w.fault || s.part.fault {
		w.fault, s.part.fault = false, false
		return s.frame(&Frame{Kind: &Frame_Request{encodeRequest(r)}})
	}
	return s.raw(frameRequest, w.inner)
}

func (s *saver) claim(c lock.SavedClaim) {
	p := &s.part
	p.inner = p.inner[:0]
	p.text(1, string(c.Resource))
	p.id(2, &c.Lease)
	p.text(3, c.Owner)
	p.number(4, uint64(c.TTL))
	p.number(5, uint64(c.Mode))
	s.record.message(7, p.inner)
}

func (s *saver) place(v lock.SavedWaiter) {
	p := &s.part
	p.inner = p.inner[:0]
	p.number(1, uint64(v.Deadline))
	p.number(2, uint64(v.Grace))
	p.number(3, v.Call)
	p.yes(4, v.Attached)
	s.record.message(8, p.inner)
}

func (s *saver) lease(l lock.SavedLease) {
	p := &s.part
	p.inner = p.inner[:0]
	p.number(1, l.Seq)
	p.number(2, uint64(l.Token))
	p.number(3, uint64(l.Since))
	p.number(4, uint64(l.Deadline))
	p.yes(5, l.Unclaimed)
	s.record.message(9, p.inner)
}

func (w *writer) yes(number protowire.Number, is bool) {
	if is {
		w.number(number, 1)
	}
}

func (w *writer) message(number protowire.Number, fields []byte) {
	w.inner = protowire.AppendTag(w.inner, number, protowire.BytesType)
	w.inner = protowire.AppendBytes(w.inner, fields)
}

// raw writes a frame with a record whose fields are there already.
func (f *frameWriter) raw(kind protowire.Number, fields []byte) error {
	size := protowire.SizeTag(kind) + protowire.SizeBytes(len(fields))
	if size > maxFrame {
		return tooLarge(size)
	}
	f.buf = binary.AppendUvarint(f.buf[:0], uint64(size))
	f.buf = protowire.AppendTag(f.buf, kind, protowire.BytesType)
	f.buf = protowire.AppendBytes(f.buf, fields)
	return f.summed()
}
