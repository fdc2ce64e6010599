package client

import (
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/lockpb/wire"
)

// A message of a session is put together from calls that were encoded by their callers: each at its own time and in its
// own goroutine, and so that nobody reads a request after its call has returned.

// sessionStream is the place of Session among the service's streams.
var sessionStream = slices.IndexFunc(lockpb.Locks_ServiceDesc.Streams, func(d grpc.StreamDesc) bool { return d.StreamName == "Session" })

// rawCodec passes messages of bytes on, and reads answers.
type rawCodec struct{}

var errNotRaw = errors.New("a session sends bytes and receives messages")

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	raw, ok := v.(*[]byte)
	if !ok {
		return nil, errNotRaw
	}
	return mem.BufferSlice{mem.SliceBuffer(*raw)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*lockpb.SessionResponse)
	if !ok {
		return errNotRaw
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return wire.ReadResponse(buffer.ReadOnlyData(), message)
}

// Name implements encoding.CodecV2. The node sees ordinary protobuf.
func (rawCodec) Name() string { return "proto" }
