package bench

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// relay passes TCP connections on to an address and delays what they carry, in both directions, as a distance does: each
// piece arrives between least and most later than it was sent, and never before what was sent ahead of it.
type relay struct {
	listener    net.Listener
	to          string
	least, most time.Duration
	passed      atomic.Int64 // bytes so far

	ctx  context.Context // ends with close
	stop context.CancelFunc
	work sync.WaitGroup
}

func newRelay(to string, least, most time.Duration) (*relay, error) {
	l, err := freeport.Listen()
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: to, least: least, most: most}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.work.Go(r.accept)
	return r, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

// close ends every connection and waits for them.
func (r *relay) close() {
	r.stop()
	_ = r.listener.Close() // nothing is lost
	r.work.Wait()
}

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.work.Go(func() { r.serve(in) })
	}
}

// serve passes one connection on until either side ends.
func (r *relay) serve(in net.Conn) {
	defer in.Close()
	out, err := new(net.Dialer).DialContext(r.ctx, "tcp", r.to)
	if err != nil {
		return // the node is not there: so it is seen
	}
	defer out.Close()
	defer context.AfterFunc(r.ctx, func() { _, _ = in.Close(), out.Close() })()
	var both sync.WaitGroup
	both.Go(func() { r.pass(out, in) })
	both.Go(func() { r.pass(in, out) })
	both.Wait()
}

// piece is something that is on its way.
type piece struct {
	data []byte
	at   time.Time // of arrival
}

// Bounds of what is on its way in one direction; past them the sender waits, as with a full pipe.
const (
	pieceSize = 64 << 10
	pieces    = 256
)

// pass moves what comes from one side to the other, until one of them ends.
func (r *relay) pass(to, from net.Conn) {
	way := make(chan piece, pieces)
	var sender sync.WaitGroup
	sender.Go(func() { r.deliver(to, from, way) })
	var last time.Time
	b := make([]byte, pieceSize)
	for {
		n, err := from.Read(b)
		if n > 0 {
			at := time.Now().Add(r.least + rand.N(r.most-r.least+1))
			if at.Before(last) {
				at = last
			}
			last = at
			way <- piece{bytes.Clone(b[:n]), at}
		}
		if err != nil {
			break
		}
	}
	close(way)
	sender.Wait()
}

// deliver hands the pieces over when they arrive. When the receiver is gone it ends the sender, and drops the rest.
func (r *relay) deliver(to, from net.Conn, way <-chan piece) {
	broken := false
	for p := range way {
		if broken {
			continue
		}
		if stage.Pause(r.ctx, time.Until(p.at)) != nil {
			broken = true
			continue
		}
		n, err := to.Write(p.data)
		r.passed.Add(int64(n))
		if err != nil {
			broken = true
			_ = from.Close() // it is told by this
		}
	}
	closeWrite(to)
}

// closeWrite passes an end on; the other direction may go on.
func closeWrite(c net.Conn) {
	if half, ok := c.(*net.TCPConn); ok && half.CloseWrite() == nil {
		return
	}
	_ = c.Close()
}
