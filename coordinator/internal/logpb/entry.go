package logpb

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// An encoded entry is a version byte, the CRC-32C (Castagnoli) of the rest in four bytes, big endian, and an Entry. The
// version is the highest that its commands need, so that an older release says at the first byte what it lacks.
const entryPrefix = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeEntry returns the bytes of an entry, the same for equal entries. It fails for what DecodeEntry would stop at:
// a name that is not UTF-8, a mode that is none.
func EncodeEntry(e lock.Entry) ([]byte, error) {
	if e.Now < 0 || e.Now > lock.MaxLeaseTime {
		return nil, fmt.Errorf("encode log entry: the lease time is %d", e.Now)
	}
	const usual = 112 // bytes of a command
	w := writer{out: make([]byte, entryPrefix, entryPrefix+16+usual*len(e.Commands))}
	if e.Now != 0 {
		w.out = protowire.AppendTag(w.out, entryNow, protowire.VarintType)
		w.out = protowire.AppendVarint(w.out, uint64(e.Now))
	}
	for i, c := range e.Commands {
		err := encodable(c)
		if err == nil {
			err = w.command(c)
		}
		if err != nil {
			return nil, fmt.Errorf("encode log entry: command %d: %w", i+1, err)
		}
	}
	out := w.out
	out[0] = entryVersion(e.Commands)
	binary.BigEndian.PutUint32(out[1:], crc32.Checksum(out[entryPrefix:], castagnoli))
	return out, nil
}

// encodable refuses the enums that DecodeEntry would not know.
func encodable(c lock.Command) error {
	var target lock.Target
	switch c := c.(type) {
	case lock.Acquire:
		if !knownMode(LeaseMode(c.Mode)) {
			return fmt.Errorf("the mode is %v", c.Mode)
		}
		return nil
	case lock.PutPolicy:
		target = c.Target
	case lock.DeletePolicy:
		target = c.Target
	default:
		return nil
	}
	if _, ok := TargetKind_name[int32(target.Kind)]; !ok {
		return fmt.Errorf("the policy's target is of the kind %v", target.Kind)
	}
	return nil
}

func entryVersion(commands []lock.Command) byte {
	version := uint32(1)
	for _, c := range commands {
		version = max(version, lock.Needs(c))
	}
	return byte(version)
}

// DecodeEntry reads what EncodeEntry wrote. Its errors wrap ErrCorrupt or ErrUnknown; on either a replica must stop.
// It allocates in proportion to len(b), whatever lengths b claims.
func DecodeEntry(b []byte) (lock.Entry, error) {
	e, err := decodeEntry(b)
	if err != nil {
		return lock.Entry{}, fmt.Errorf("decode log entry: %w", err)
	}
	return e, nil
}

func decodeEntry(b []byte) (lock.Entry, error) {
	if len(b) < entryPrefix {
		return lock.Entry{}, fmt.Errorf("%w: %d bytes are too few", ErrCorrupt, len(b))
	}
	if b[0] == 0 || b[0] > lock.MaxVersion {
		return lock.Entry{}, fmt.Errorf("%w: version %d", ErrUnknown, b[0])
	}
	if crc32.Checksum(b[entryPrefix:], castagnoli) != binary.BigEndian.Uint32(b[1:]) {
		return lock.Entry{}, fmt.Errorf("%w: the checksum does not match", ErrCorrupt)
	}
	e, err := decodeEntryBody(b[entryPrefix:])
	if err != nil {
		return lock.Entry{}, err
	}
	if needs := entryVersion(e.Commands); needs != b[0] {
		return lock.Entry{}, fmt.Errorf("%w: its commands are of version %d, and it says %d", ErrCorrupt, needs, b[0])
	}
	return e, nil
}

func decodeEntryBody(b []byte) (lock.Entry, error) {
	e := lock.Entry{Commands: make([]lock.Command, 0, countCommands(b))}
	var r reader
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return lock.Entry{}, fmt.Errorf("%w: %w", ErrCorrupt, protowire.ParseError(n))
		}
		b = b[n:]
		switch {
		case number == entryNow && typ == protowire.VarintType:
			var now uint64
			now, n = protowire.ConsumeVarint(b)
			e.Now = lock.LeaseTime(now)
		case number == entryCommands && typ == protowire.BytesType:
			var raw []byte
			raw, n = protowire.ConsumeBytes(b)
			if n < 0 {
				break
			}
			c, err := r.read(raw)
			if err != nil {
				return lock.Entry{}, fmt.Errorf("command %d: %w", len(e.Commands)+1, err)
			}
			e.Commands = append(e.Commands, c)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
			if n >= 0 {
				return lock.Entry{}, fmt.Errorf("%w: Entry has an unknown field", ErrUnknown)
			}
		}
		if n < 0 {
			return lock.Entry{}, fmt.Errorf("%w: %w", ErrCorrupt, protowire.ParseError(n))
		}
		b = b[n:]
	}
	if e.Now < 0 || e.Now > lock.MaxLeaseTime {
		return lock.Entry{}, fmt.Errorf("%w: the lease time is %d", ErrCorrupt, e.Now)
	}
	return e, nil
}

// read reads a command.
func (r *reader) read(raw []byte) (lock.Command, error) {
	if c, ok := r.command(raw); ok {
		return c, nil
	}
	var message Command
	if err := proto.Unmarshal(raw, &message); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return decodeCommand(&message)
}

// countCommands is how many commands there are, if the entry is what it seems to be.
func countCommands(b []byte) (commands int) {
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return commands
		}
		if number == entryCommands {
			commands++
		}
		b = b[n:]
	}
	return commands
}

// known refuses a message with fields of its own that this release does not know.
func known(m proto.Message) error {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return fmt.Errorf("%w: %s has an unknown field", ErrUnknown, m.ProtoReflect().Descriptor().Name())
	}
	return nil
}
