package logpb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A snapshot is the magic, a version byte, and frames. A frame is its length (uvarint), that many bytes of a Frame,
// and the CRC-32C of everything from the first byte of the snapshot up to here, so that frames can neither change
// nor move, repeat or go missing. The frames are a header, the delays, each client followed by its requests, and an end.
// The version is that of the cluster, or 1: while not every node was upgraded, an older one may be sent the snapshot.
const (
	snapshotMagic = "lychgate"
	// maxFrame bounds one frame, and so what a lying length makes the reader allocate.
	maxFrame = 1 << 20
)

// WriteSnapshot writes s, one record at a time. Equal machines give equal bytes. It does not close or sync w.
func WriteSnapshot(w io.Writer, s *lock.Snapshot) error {
	buffered := bufio.NewWriterSize(w, 1<<16)
	f := &frameWriter{w: buffered}
	if err := writeSnapshot(f, s); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func snapshotVersion(h lock.Header) byte { return byte(max(h.Version, 1)) }

func writeSnapshot(f *frameWriter, s *lock.Snapshot) error {
	if err := f.bytes(append([]byte(snapshotMagic), snapshotVersion(s.Header()))); err != nil {
		return err
	}
	if err := f.frame(&Frame{Kind: &Frame_Header{encodeHeader(s.Header())}}); err != nil {
		return err
	}
	end := &End{}
	for delay := range s.Delays() {
		if err := f.frame(&Frame{Kind: &Frame_Delay{encodeDelay(delay)}}); err != nil {
			return err
		}
		end.Delays++
	}
	records := &saver{frameWriter: f}
	for client, requests := range s.Clients() {
		n, err := writeClient(records, client, requests)
		if err != nil {
			return err
		}
		end.Clients++
		end.Requests += n
	}
	return f.frame(&Frame{Kind: &Frame_End{end}})
}

func writeClient(to *saver, c lock.SavedClient, requests iter.Seq[lock.SavedRequest]) (n uint64, err error) {
	if err := to.client(c); err != nil {
		return 0, err
	}
	for r := range requests {
		if err := to.request(r); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// frameWriter writes frames and keeps the running checksum.
type frameWriter struct {
	w   io.Writer
	sum uint32
	buf []byte
}

func (f *frameWriter) bytes(b []byte) error {
	f.sum = crc32.Update(f.sum, castagnoli, b)
	_, err := f.w.Write(b)
	return err
}

func (f *frameWriter) frame(message *Frame) error {
	size := proto.Size(message)
	if size > maxFrame {
		return tooLarge(size)
	}
	f.buf = binary.AppendUvarint(f.buf[:0], uint64(size))
	b, err := proto.MarshalOptions{Deterministic: true, UseCachedSize: true}.MarshalAppend(f.buf, message)
	if err != nil {
		return err
	}
	f.buf = b
	return f.summed()
}

// summed writes what is in buf, and the checksum behind it.
func (f *frameWriter) summed() error {
	f.sum = crc32.Update(f.sum, castagnoli, f.buf)
	f.buf = binary.BigEndian.AppendUint32(f.buf, f.sum)
	_, err := f.w.Write(f.buf)
	return err
}

func tooLarge(size int) error {
	return fmt.Errorf("a record of %d bytes is larger than %d", size, maxFrame)
}

// ReadSnapshot reads what WriteSnapshot wrote, to the end of r, and returns the machine as it was. Its errors wrap
// ErrCorrupt or ErrUnknown, or are those of r. Its memory is bounded by what r really has, and maxFrame beyond.
func ReadSnapshot(r io.Reader) (*lock.Machine, error) {
	m, err := readSnapshot(&frameReader{r: bufio.NewReaderSize(r, 1<<16)})
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return m, nil
}

// ReadIncarnation reads no further than the incarnation of the state in a snapshot. Its errors are those of ReadSnapshot.
func ReadIncarnation(r io.Reader) (uint32, error) {
	header, err := readHeader(&frameReader{r: bufio.NewReader(r)})
	if err != nil {
		return 0, fmt.Errorf("read the head of a snapshot: %w", err)
	}
	return header.Incarnation, nil
}

func readHeader(f *frameReader) (header lock.Header, err error) {
	version, err := f.start()
	if err != nil {
		return header, err
	}
	first, err := f.frame()
	if err != nil {
		return header, err
	}
	header, err = decodeHeader(first.GetHeader())
	if err != nil {
		return header, err
	}
	switch {
	case header.Version > lock.MaxVersion:
		return header, fmt.Errorf("%w: cluster version %d", ErrUnknown, header.Version)
	case snapshotVersion(header) != version:
		return header, fmt.Errorf("%w: it says version %d, and its cluster has %d", ErrCorrupt, version, header.Version)
	}
	return header, nil
}

func readSnapshot(f *frameReader) (*lock.Machine, error) {
	header, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	restorer, err := lock.NewRestorer(header)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for seen := (&End{}); ; {
		message, err := f.frame()
		if err != nil {
			return nil, err
		}
		if end, ok := message.GetKind().(*Frame_End); ok {
			return finish(f, restorer, seen, end.End)
		}
		if err := restore(restorer, message, seen); err != nil {
			return nil, err
		}
	}
}

// restore hands one client or request to the restorer and counts it.
func restore(to *lock.Restorer, message *Frame, seen *End) error {
	switch kind := message.GetKind().(type) {
	case *Frame_Client:
		seen.Clients++
		client, err := decodeClient(kind.Client)
		if err != nil {
			return err
		}
		return corrupt(to.Client(client))
	case *Frame_Request:
		seen.Requests++
		request, err := decodeRequest(kind.Request)
		if err != nil {
			return err
		}
		return corrupt(to.Request(request))
	case *Frame_Delay:
		seen.Delays++
		delay, err := decodeDelay(kind.Delay)
		if err != nil {
			return err
		}
		return corrupt(to.Delay(delay))
	case *Frame_Header, *Frame_End:
		return fmt.Errorf("%w: a second header", ErrCorrupt)
	}
	return fmt.Errorf("%w: a record of no known kind", ErrUnknown)
}

func corrupt(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// finish checks that nothing is missing and nothing follows.
func finish(f *frameReader, from *lock.Restorer, seen, end *End) (*lock.Machine, error) {
	if err := known(end); err != nil {
		return nil, err
	}
	if !proto.Equal(seen, end) {
		return nil, fmt.Errorf("%w: %d clients and %d requests where the end says %d and %d",
			ErrCorrupt, seen.GetClients(), seen.GetRequests(), end.GetClients(), end.GetRequests())
	}
	switch _, err := f.r.ReadByte(); {
	case err == nil:
		return nil, fmt.Errorf("%w: something follows the end", ErrCorrupt)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	m, err := from.Machine()
	return m, corrupt(err)
}

// frameReader reads frames and checks the running checksum.
type frameReader struct {
	r   *bufio.Reader
	sum uint32
	buf []byte
}

// start reads the magic and the version.
func (f *frameReader) start() (version byte, err error) {
	head := make([]byte, len(snapshotMagic)+1)
	if err := f.full(head); err != nil {
		return 0, err
	}
	version = head[len(snapshotMagic)]
	switch {
	case string(head[:len(snapshotMagic)]) != snapshotMagic:
		return 0, fmt.Errorf("%w: it does not begin like a snapshot", ErrCorrupt)
	case version == 0 || version > lock.MaxVersion:
		return 0, fmt.Errorf("%w: version %d", ErrUnknown, version)
	}
	f.sum = crc32.Checksum(head, castagnoli)
	return version, nil
}

// frame reads the next frame. It trusts nothing of it before the checksum has matched.
func (f *frameReader) frame() (*Frame, error) {
	body, err := f.body()
	if err != nil {
		return nil, err
	}
	var message Frame
	if err := proto.Unmarshal(body, &message); err != nil {
		return nil, corrupt(err)
	}
	return &message, known(&message)
}

func (f *frameReader) body() ([]byte, error) {
	size, err := f.size()
	if err != nil {
		return nil, err
	}
	if need := binary.MaxVarintLen64 + int(size) + crc32.Size; cap(f.buf) < need {
		f.buf = make([]byte, need)
	}
	prefix := binary.PutUvarint(f.buf[:cap(f.buf)], size)
	f.buf = f.buf[:prefix+int(size)+crc32.Size]
	if err := f.full(f.buf[prefix:]); err != nil {
		return nil, err
	}
	end := len(f.buf) - crc32.Size
	f.sum = crc32.Update(f.sum, castagnoli, f.buf[:end])
	if f.sum != binary.BigEndian.Uint32(f.buf[end:]) {
		return nil, fmt.Errorf("%w: a checksum does not match", ErrCorrupt)
	}
	return f.buf[prefix:end], nil
}

// size reads a frame's length, at most maxFrame. binary.ReadUvarint does not tell a bad number from a reader's error.
func (f *frameReader) size() (size uint64, err error) {
	for shift := 0; shift < 8*binary.MaxVarintLen32; shift += 7 {
		b, err := f.r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		size |= uint64(b&0x7f) << shift
		if size > maxFrame {
			break
		}
		if b < 0x80 {
			return size, nil
		}
	}
	return 0, fmt.Errorf("%w: a record that claims more than %d bytes", ErrCorrupt, maxFrame)
}

func (f *frameReader) full(b []byte) error {
	_, err := io.ReadFull(f.r, b)
	return cut(err)
}

// cut turns the end of the input where more must follow into ErrCorrupt. Other errors are the reader's own.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrCorrupt)
	}
	return err
}
