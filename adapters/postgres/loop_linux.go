package postgres

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// loop is one goroutine that moves the bytes of many sessions whose connections are bare sockets. It never waits but
// for all of them together, never holds more of a session than what one burst left over, and takes whatever is out of
// the ordinary, an end of stream or a reason to stop, for the moment to hand the session back to its own goroutine.
//
// Sockets are watched edge-triggered: there is no system call to stop reading from one whose bytes the other side does
// not take, and none to go on. A read that does not fill the buffer has taken all that was there.
type loop struct {
	poll   int // the epoll instance
	alarm  int // an eventfd: something is posted
	events []unix.EpollEvent
	buffer []byte // what is read; every session uses it for one burst
	spares spares
	rides  []*ride // by place; nil: the place is free
	free   []int32 // places
	again  []*ride // those that have had their turn and have more to do

	waiting    waiting
	processors int32 // that the process has, as it was not long ago

	mu     sync.Mutex
	posted []*ride // that are new, or are to be looked at
	closed bool
}

const (
	burstSize = 64 << 10 // the most that is read at once
	turn      = 4        // bursts of one direction before others have their turn
	eventsMax = 128      // taken at once
)

// alarmPlace stands for the alarm where an event names a place.
const alarmPlace = -1

// newLoop opens what a loop needs.
func newLoop() (*loop, error) {
	l := &loop{poll: -1, alarm: -1, events: make([]unix.EpollEvent, eventsMax), buffer: make([]byte, burstSize)}
	var err error
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(l.poll, true); err != nil { // or else Go's poller takes no copy of it
		l.closeFiles()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if l.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: alarmPlace}
	if err := unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, l.alarm, &event); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return l, nil
}

// edge is EPOLLET, whose constant is negative.
const edge = 1 << 31

func (l *loop) closeFiles() {
	l.closeParked()
	for _, fd := range []int{l.poll, l.alarm} {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing is left to be lost
		}
	}
}

// close ends a loop that carries no session any more.
func (l *loop) close() {
	l.mu.Lock()
	l.closed = true
	l.ring()
	l.mu.Unlock()
}

// post lets the loop look at a session. It is called by anybody, and returns at once.
func (l *loop) post(c *ride) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.posted || l.closed {
		return
	}
	c.posted = true
	l.posted = append(l.posted, c)
	if len(l.posted) == 1 {
		l.ring()
	}
}

// ring wakes the loop. l.mu is held: afterwards the loop may be gone.
func (l *loop) ring() {
	one := [8]byte{1}
	_, _ = unix.Write(l.alarm, one[:]) // full: it rings already
}

// run blocks until close is called.
func (l *loop) run() {
	defer l.closeFiles()
	for {
		n := l.wait()
		turns := l.again
		l.again = nil
		rung := false
		for i := range n {
			if l.events[i].Fd == alarmPlace {
				rung = true
				continue
			}
			l.take(&l.events[i])
		}
		for _, c := range turns {
			c.goOn()
		}
		if rung && l.lookAtPosted() {
			return
		}
	}
}

// take deals with what the kernel reports of one socket.
func (l *loop) take(event *unix.EpollEvent) {
	c := l.rides[event.Fd>>1]
	if c == nil {
		return // it was handed back by an event before this one
	}
	if event.Fd&1 == clientSide {
		c.take(&c.client, event.Events)
	} else {
		c.take(&c.server, event.Events)
	}
}

// lookAtPosted reports whether the loop is to end.
func (l *loop) lookAtPosted() (closed bool) {
	var count [8]byte
	_, _ = unix.Read(l.alarm, count[:]) // it rings again for what is posted from here on
	l.mu.Lock()
	posted := l.posted
	l.posted = nil
	for _, c := range posted {
		c.posted = false
	}
	closed = l.closed
	l.mu.Unlock()
	for _, c := range posted {
		c.lookedAt()
	}
	return closed
}

// admit gives a session its place and watches its sockets.
func (l *loop) admit(c *ride) error {
	if len(l.free) == 0 {
		l.rides = append(l.rides, nil)
		l.free = append(l.free, int32(len(l.rides)-1))
	}
	place := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.rides[place], c.place = c, place
	c.client.place, c.server.place = place<<1|clientSide, place<<1|serverSide
	return errors.Join(c.client.watch(l, unix.EPOLL_CTL_ADD), c.server.watch(l, unix.EPOLL_CTL_ADD))
}

// dismiss ends what admit began.
func (l *loop) dismiss(c *ride) {
	if c.place < 0 {
		return
	}
	for _, fd := range []int{c.client.fd, c.server.fd} {
		_ = unix.EpollCtl(l.poll, unix.EPOLL_CTL_DEL, fd, nil) // fails for one that could not be added
	}
	l.rides[c.place] = nil
	l.free = append(l.free, c.place)
	c.place = -1
}

// spares are buffers for what bursts leave over, kept for the next session that needs one.
type spares [][]byte

// sparesMax bounds the buffers that are kept; more than that are left to the garbage collector.
const sparesMax = 32

// keep copies bytes into a spare buffer.
func (s *spares) keep(bytes []byte) []byte {
	if n := len(*s); n > 0 && cap((*s)[n-1]) >= len(bytes) {
		spare := (*s)[n-1]
		*s = (*s)[:n-1]
		return append(spare[:0], bytes...)
	}
	return append(make([]byte, 0, max(bufferSize, len(bytes))), bytes...)
}

// giveBack is for a buffer that is not used any more.
func (s *spares) giveBack(buffer []byte) {
	if cap(buffer) >= bufferSize && len(*s) < sparesMax {
		*s = append(*s, buffer)
	}
}
