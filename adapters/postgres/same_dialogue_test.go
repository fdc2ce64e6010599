package postgres_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// dialogue is one connection whose answers are kept as text.
type dialogue struct {
	conn   net.Conn
	in     *bufio.Reader
	pid    []byte // of BackendKeyData
	told   []string
	ended  bool
	writes chan struct{} // closed when what was sent last has left
}

// stuck stands for messages that were waited for and did not come.
const stuck = "nothing more comes"

func newDialogue(t testing.TB, l leg) *dialogue {
	t.Helper()
	conn := dial(t, l.addr)
	_ = conn.SetDeadline(time.Now().Add(l.patience))
	return &dialogue{conn: conn, in: bufio.NewReader(conn)}
}

// send writes in the background, so that the other side may write at the same time. That the other side has closed is
// seen in what is read.
func (d *dialogue) send(b []byte, cuts []int) {
	before, done := d.writes, make(chan struct{})
	d.writes = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		from := 0
		for _, at := range append(cuts, len(b)) {
			if _, err := d.conn.Write(b[from:at]); err != nil {
				return
			}
			from = at
		}
	}()
}

// read takes messages up to the count-th of a type, or the end.
func (d *dialogue) read(until byte, count int) {
	for !d.ended && count > 0 {
		if f := d.next(); f.typ == until {
			count--
		}
	}
}

// finish takes leave and hangs up (a server in a COPY does not understand the leave), reads to the end, and returns all
// that was told.
func (d *dialogue) finish() []string {
	d.send([]byte{'X', 0, 0, 0, 4}, nil)
	<-d.writes
	_ = d.conn.(*net.TCPConn).CloseWrite()
	for !d.ended {
		d.next()
	}
	d.conn.Close()
	return d.told
}

func (d *dialogue) next() frame {
	var header [5]byte
	_, err := io.ReadFull(d.in, header[:])
	f := frame{typ: header[0]}
	if err == nil {
		f.body = make([]byte, binary.BigEndian.Uint32(header[1:])-4)
		_, err = io.ReadFull(d.in, f.body)
	}
	if err != nil {
		d.ended = true
		how := closed
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			how = stuck
		case errors.Is(err, syscall.ECONNRESET):
			how = reset
		}
		d.told = append(d.told, how)
		return frame{}
	}
	if f.typ == 'K' {
		d.pid = bytes.Clone(f.body[:4])
	}
	d.told = append(d.told, f.text(d.pid))
	return f
}

// frame is a message of the server.
type frame struct {
	typ  byte
	body []byte
}

// text is the message without what differs between two sessions of one server: the number and the key of the process,
// and the numbers that tables got which the conversation itself made.
func (f frame) text(pid []byte) string {
	body := bytes.Clone(f.body)
	switch f.typ {
	case 'K':
		return fmt.Sprintf("K with a key of %d bytes", len(body)-4)
	case 'A':
		if bytes.Equal(body[:4], pid) {
			copy(body, "self")
		}
	case 'T':
		hideTables(body)
	}
	if len(body) > 300 {
		h := fnv.New64()
		_, _ = h.Write(body)
		return fmt.Sprintf("%c %q… %d bytes, %x", f.typ, body[:100], len(body), h.Sum64())
	}
	return fmt.Sprintf("%c %q", f.typ, body)
}

// firstUserOID is the least number of what is not the server's own.
const firstUserOID = 16384

func hideTables(columns []byte) {
	for rest := columns[2:]; len(rest) > 0; {
		rest = rest[bytes.IndexByte(rest, 0)+1:]
		if binary.BigEndian.Uint32(rest) >= firstUserOID {
			copy(rest, "user")
		}
		rest = rest[18:]
	}
}
