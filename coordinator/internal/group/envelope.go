package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// An entry's Extensions say in which term it was stamped: one byte version, eight bytes term, big endian.
// The library assigns the term of the log by itself, and may do so a moment later, when this node has lost
// its leadership and won it again. The stamp of an earlier term is worthless then: another leader has
// stamped in between, on another clock.
const (
	envelopeVersion = 1
	envelopeSize    = 9
)

var errEnvelope = errors.New("the entry has no envelope that this release knows")

// seal makes the log entry for entry, stamped in term. Its error wraps errEncoding.
func seal(term uint64, entry lock.Entry) (raft.Log, error) {
	data, err := logpb.EncodeEntry(entry)
	if err != nil {
		return raft.Log{}, fmt.Errorf("%w: %w", errEncoding, err)
	}
	envelope := make([]byte, 1, envelopeSize)
	envelope[0] = envelopeVersion
	return raft.Log{Data: data, Extensions: binary.BigEndian.AppendUint64(envelope, term)}, nil
}

// unseal is the entry of a log. One that was stamped in another term than it was logged in carries no time:
// its commands run at the lease time of the state. Every replica decides so alike, from the log alone.
func unseal(log *raft.Log) (lock.Entry, error) {
	if len(log.Extensions) != envelopeSize || log.Extensions[0] != envelopeVersion {
		return lock.Entry{}, errEnvelope
	}
	entry, err := logpb.DecodeEntry(log.Data)
	if err != nil {
		return lock.Entry{}, fmt.Errorf("decode an entry: %w", err)
	}
	if binary.BigEndian.Uint64(log.Extensions[1:]) != log.Term {
		entry.Now = 0
	}
	return entry, nil
}
