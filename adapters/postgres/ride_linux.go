package postgres

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ride is a session in a loop. It belongs to the loop from the time it is posted to the time over is closed.
type ride struct {
	loop     *loop
	relay    *relay
	place    int32 // -1: it has none
	posted   bool  // loop.mu guards it
	client   socket
	server   socket
	toServer lane
	toClient lane
	waits    bool          // what has arrived from the client waits for something other than bytes
	arrived  bool          // something may have arrived from the server before the ride
	again    bool          // it is in the loop's list of those that have more to do
	ended    bool          // nothing moves any more
	cause    error         // why the server's part has ended, if it has
	over     chan struct{} // closed when the loop has nothing to do with the session any more
}

// socket is one of its connections.
type socket struct {
	fd       int
	place    int32
	readable bool // there may be something to read
	closing  bool // and behind it the end, or an error: a short read is not the last
	blocked  bool // it takes no more for now
}

const (
	clientSide = 0
	serverSide = 1
)

// watch tells the kernel what of a socket is of interest.
func (s *socket) watch(l *loop, op int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | edge, Fd: s.place}
	if s.blocked {
		event.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.poll, op, s.fd, &event)
}

// look is called by anybody.
func (c *ride) look() { c.loop.post(c) }

// lookedAt begins a ride, or goes on where it waited, or ends it because the relay is over.
func (c *ride) lookedAt() {
	if c.ended {
		return // it was handed back meanwhile
	}
	if c.place < 0 {
		c.begin()
	}
	if c.relay.isOver() {
		c.end()
	}
	if c.waits {
		c.up()
	}
	c.handBack()
}

func (c *ride) begin() {
	if c.loop.admit(c) != nil {
		c.end()
	}
	c.waits, c.arrived = true, true // something may have arrived before
	c.down()
}

// end is called by whoever finds that the ride is over. From then on nothing moves.
func (c *ride) end() { c.ended = true }

// handBack gives a session whose ride has ended back to its own goroutine. It is the last thing that the loop does
// with it.
func (c *ride) handBack() {
	if !c.ended {
		return
	}
	c.loop.dismiss(c)
	if c.client.blocked {
		c.relay.writing.Add(1)
	}
	close(c.over)
}

// take deals with what the kernel reports of a socket.
func (c *ride) take(s *socket, events uint32) {
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable = true
		s.closing = s.closing || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	}
	if s.blocked && events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.unblock(s)
	}
	if s == &c.client {
		c.up()
	} else {
		c.down()
	}
	c.handBack()
}

// goOn gives a session that had more to do another turn.
func (c *ride) goOn() {
	c.again = false
	if c.ended {
		return // it was handed back meanwhile
	}
	c.down()
	c.up()
	c.handBack()
}

// goOnLater lets others have their turn first.
func (c *ride) goOnLater() {
	if !c.again {
		c.again = true
		c.loop.again = append(c.loop.again, c)
	}
}

// up carries what the client sends to the server.
func (c *ride) up() {
	for range turn {
		if c.ended || c.server.blocked || !c.waits && !c.client.readable {
			return
		}
		in, ok := c.gather(&c.client, &c.toServer, c.waits)
		if !ok {
			return
		}
		b, n, err := c.relay.fromClient(in)
		c.waits = n == wait
		c.send(&c.server, &c.toServer, b.result())
		c.keep(&c.toServer, b.left())
		switch {
		case err != nil:
			if !errors.Is(err, errEnded) {
				c.relay.end(err)
			}
			c.end()
		case n == left:
			c.end()
		case n == wait:
			return
		}
	}
	c.goOnLater()
}

// down carries what the server sends to the client.
func (c *ride) down() {
	for range turn {
		if c.ended || c.client.blocked || !c.arrived && !c.server.readable {
			return
		}
		in, ok := c.gather(&c.server, &c.toClient, c.arrived)
		if !ok {
			return
		}
		c.arrived = false
		b, err := c.relay.fromServer(in)
		c.send(&c.client, &c.toClient, b.result())
		c.keep(&c.toClient, b.left())
		if err != nil {
			c.cause = err
			c.end()
		}
		if c.waits {
			c.up()
		}
	}
	c.goOnLater()
}

// gather puts together what has arrived and was not dealt with, and what is to be read now, if anything is. Not ok: there
// is nothing to do, or the session has ended.
func (c *ride) gather(from *socket, through *lane, asItIs bool) (in []byte, ok bool) {
	buffer := c.loop.buffer
	kept := copy(buffer, through.in)
	if asItIs {
		return buffer[:kept], true
	}
	n, err := readSocket(from.fd, buffer[kept:])
	switch {
	case err == unix.EAGAIN:
		from.readable = false
		return nil, false
	case err != 0 || n == 0:
		c.end() // the session's own goroutine finds out the same
		return nil, false
	}
	from.readable = kept+n == len(buffer) || from.closing
	return buffer[:kept+n], true
}

// keep remembers what was not dealt with.
func (c *ride) keep(through *lane, rest []byte) {
	old := through.in
	through.in = nil
	if len(rest) > 0 {
		if cap(old) >= len(rest) {
			through.in = append(old[:0], rest...)
			return
		}
		through.in = c.loop.spares.keep(rest)
	}
	c.loop.spares.giveBack(old)
}

// send writes to a socket; what it does not take stays in the lane, and nothing more is read for it until then.
func (c *ride) send(to *socket, through *lane, out []byte) {
	n, err := writeSocket(to.fd, out)
	switch {
	case n == len(out):
		return
	case err != unix.EAGAIN:
		through.out = append([]byte{}, out[n:]...)
		c.end() // the session's own goroutine finds out the same
		return
	}
	through.out = c.loop.spares.keep(out[n:])
	to.blocked = true
	if to == &c.client {
		c.relay.writing.Add(1)
	}
	if to.watch(c.loop, unix.EPOLL_CTL_MOD) != nil {
		c.end()
	}
}

// unblock goes on writing to a socket that had taken no more, and then reads again from the other.
func (c *ride) unblock(s *socket) {
	through := &c.toClient
	if s == &c.server {
		through = &c.toServer
	}
	n, err := writeSocket(s.fd, through.out)
	through.out = through.out[:copy(through.out, through.out[n:])]
	switch {
	case len(through.out) > 0 && err == unix.EAGAIN:
		if s == &c.client && n > 0 {
			c.relay.writing.Add(2) // it is another write now
		}
		return
	case len(through.out) > 0:
		c.end()
		return
	}
	c.loop.spares.giveBack(through.out)
	through.out = nil
	s.blocked = false
	if s == &c.client {
		c.relay.writing.Add(1)
	}
	if s.watch(c.loop, unix.EPOLL_CTL_MOD) != nil {
		c.end()
		return
	}
	if s == &c.client {
		c.down()
	} else {
		c.up()
	}
}
