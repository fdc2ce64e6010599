package archive

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Writer writes an archive. It is used by one goroutine: NewWriter, Group for each group with its content between, Close.
type Writer struct {
	w       io.Writer
	sum     uint32
	content []byte // of the group, not written yet
	open    bool   // a group is
	failed  error
}

// NewWriter writes the header to w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	out := &Writer{w: w, content: make([]byte, 0, maxContent)}
	out.bytes([]byte(magic))
	out.document(kindHeader, h)
	return out, out.failed
}

// Group begins a group and ends the one before. What is written from now on is its content.
func (w *Writer) Group(g Group) error {
	w.endGroup()
	w.open = true
	w.document(kindGroup, g)
	return w.failed
}

// Write adds to the content of the group.
func (w *Writer) Write(p []byte) (int, error) {
	if !w.open {
		return 0, errors.New("archive: content outside of a group")
	}
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxContent-len(w.content))
		w.content = append(w.content, p[:n]...)
		p = p[n:]
		written += n
		if len(w.content) == maxContent {
			w.flush()
		}
		if w.failed != nil {
			return written, w.failed
		}
	}
	return written, nil
}

// Close ends the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.endGroup()
	w.frame(kindEnd, nil)
	return w.failed
}

func (w *Writer) endGroup() {
	if !w.open {
		return
	}
	w.flush()
	w.frame(kindGroupEnd, nil)
	w.open = false
}

func (w *Writer) flush() {
	if len(w.content) > 0 {
		w.frame(kindContent, w.content)
		w.content = w.content[:0]
	}
}

func (w *Writer) document(kind byte, v any) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxContent {
		err = fmt.Errorf("archive: %T of %d bytes", v, len(text))
	}
	if err != nil {
		w.failed = errors.Join(w.failed, err)
		return
	}
	w.frame(kind, text)
}

func (w *Writer) frame(kind byte, content []byte) {
	head := make([]byte, frameHead)
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	binary.BigEndian.PutUint32(head[5:], crc32.Checksum(head[:5], castagnoli))
	w.bytes(head)
	w.bytes(content)
	w.bytes(binary.BigEndian.AppendUint32(nil, w.sum))
}

func (w *Writer) bytes(p []byte) {
	if w.failed != nil {
		return
	}
	w.sum = crc32.Update(w.sum, castagnoli, p)
	if _, err := w.w.Write(p); err != nil {
		w.failed = fmt.Errorf("write snapshot file: %w", err)
	}
}
