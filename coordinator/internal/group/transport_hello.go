package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Every connection between peers begins with a hello from the node that dialled, and an answer of the same form:
//
//	magic "LGPR", version (1 byte), verdict (1 byte), group (2 bytes, big endian),
//	length (1 byte) and node id, length (1 byte) and name of the cluster (empty: not known yet),
//	life of the group's state (4 bytes, big endian): incarnation + 1 (0: there is no state yet)
//
// What follows is the Raft library's. Both sides read no byte more than the hello, and take as long as helloTimeout.
type hello struct {
	verdict verdict // of a hello: accepted
	group   uint16
	node    string
	cluster string
	life    life
}

const (
	helloMagic   = "LGPR"
	helloVersion = 1
	helloFixed   = len(helloMagic) + 4
	helloTimeout = 5 * time.Second
)

// verdict is what a node says to a hello.
type verdict byte

const (
	accepted verdict = iota
	refusedVersion
	refusedCluster
	refusedNode  // the id is the listening node's own, malformed, or not the one that the connection was verified for
	refusedGroup // there is no such group here, or it is not open
	refusedFull
	refusedLife // the states are of two lives of the cluster
)

func (v verdict) String() string {
	switch v {
	case accepted:
		return "accepted"
	case refusedVersion:
		return "it speaks another version"
	case refusedCluster:
		return "it belongs to another cluster"
	case refusedNode:
		return "the node id is not one that it takes from this connection"
	case refusedGroup:
		return "the group is not open there"
	case refusedFull:
		return "it has too many connections"
	case refusedLife:
		return "it is of another life of the cluster"
	}
	return fmt.Sprintf("verdict %d", byte(v))
}

var errForeign = errors.New("what came is not a hello between peers")

func writeHello(w io.Writer, h hello) error {
	if len(h.node) == 0 || len(h.node) > 255 || len(h.cluster) > 255 {
		return fmt.Errorf("a hello of node %q, cluster %q: too long or empty", h.node, h.cluster)
	}
	var b strings.Builder
	b.WriteString(helloMagic)
	b.Write([]byte{helloVersion, byte(h.verdict), byte(h.group >> 8), byte(h.group)})
	for _, name := range []string{h.node, h.cluster} {
		b.WriteByte(byte(len(name)))
		b.WriteString(name)
	}
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(h.life)))
	_, err := io.WriteString(w, b.String()) // one write: one packet
	return err
}

// readHello reads at most 524 bytes. A version that it does not know is no error but a verdict, as far as the fixed part.
func readHello(r io.Reader) (hello, error) {
	fixed := make([]byte, helloFixed)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return hello{}, fmt.Errorf("read a hello: %w", err)
	}
	if string(fixed[:len(helloMagic)]) != helloMagic {
		return hello{}, errForeign
	}
	rest := fixed[len(helloMagic):]
	h := hello{verdict: verdict(rest[1]), group: uint16(rest[2])<<8 | uint16(rest[3])}
	if rest[0] != helloVersion {
		h.verdict = refusedVersion
		return h, nil
	}
	for _, name := range []*string{&h.node, &h.cluster} {
		text, err := readShort(r)
		if err != nil {
			return hello{}, err
		}
		*name = text
	}
	var of [4]byte
	if _, err := io.ReadFull(r, of[:]); err != nil {
		return hello{}, fmt.Errorf("read a hello: %w", err)
	}
	h.life = life(binary.BigEndian.Uint32(of[:]))
	return h, nil
}

func readShort(r io.Reader) (string, error) {
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", fmt.Errorf("read a hello: %w", err)
	}
	text := make([]byte, length[0])
	if _, err := io.ReadFull(r, text); err != nil {
		return "", fmt.Errorf("read a hello: %w", err)
	}
	return string(text), nil
}
