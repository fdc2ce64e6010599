package postgres

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loops are those of a server.
type loops struct {
	all    []*loop
	next   atomic.Uint32
	ending sync.WaitGroup
}

// newLoops starts up to count loops. Where fewer can be had there are fewer.
func newLoops(count int, log *slog.Logger) *loops {
	ls := &loops{}
	for range max(count, 0) {
		l, err := newLoop()
		if err != nil {
			log.Warn("event loop not started: sessions have goroutines of their own", "cause", err.Error())
			break
		}
		ls.all = append(ls.all, l)
		ls.ending.Go(l.run)
	}
	return ls
}

// close waits until all loops have ended. They carry no session any more.
func (ls *loops) close() {
	for _, l := range ls.all {
		l.close()
	}
	ls.ending.Wait()
}

// ride lets a loop carry the session as long as nothing is out of the ordinary, and returns where it stands then. Where
// there is no loop for it that is at once.
func (r *relay) ride(at underway) underway {
	ls := r.session.server.loops
	if len(ls.all) == 0 {
		return at
	}
	client, server, ok := detachBoth(r.session.client, r.session.upstream)
	if !ok {
		return at
	}
	c := &ride{
		loop: ls.all[int(ls.next.Add(1))%len(ls.all)], relay: r, place: -1, over: make(chan struct{}),
		toServer: at.toServer, toClient: at.toClient, client: socket{fd: client}, server: socket{fd: server},
	}
	r.drive(c)
	c.look()
	<-c.over
	r.session.attach(client, server)
	return underway{toServer: c.toServer, toClient: c.toClient, cause: c.cause}
}

// detachBoth takes the sockets out of two connections, which are closed then. Not ok: one has none, or no more files
// can be had, and both are as they were.
func detachBoth(a, b net.Conn) (fdA, fdB int, ok bool) {
	fdA, err := copySocket(a)
	if err != nil {
		return 0, 0, false
	}
	fdB, err = copySocket(b)
	if err != nil {
		_ = unix.Close(fdA) // a copy
		return 0, 0, false
	}
	a.Close() // the sockets live on in their copies, of which Go's own poller knows nothing
	b.Close()
	return fdA, fdB, true
}

// copySocket makes a second file descriptor of a connection's bare socket.
func copySocket(conn net.Conn) (fd int, err error) {
	if replayed, ok := conn.(*replayConn); ok && len(replayed.first) == 0 {
		conn = replayed.Conn
	}
	var raw syscall.RawConn
	switch conn := conn.(type) {
	case *net.TCPConn:
		raw, err = conn.SyscallConn()
	case *net.UnixConn:
		raw, err = conn.SyscallConn()
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return -1, err
	}
	control := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(control, err)
}

// attach makes connections of the sockets again.
func (s *session) attach(client, server int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.upstream = newDetached(client, s.client), newDetached(server, s.upstream)
}

// detached is a connection that was made of a socket again. net.FileConn would do, but it needs another file descriptor
// for an instant, and the process may have none left.
type detached struct {
	*os.File
	before net.Conn // closed; it knows the addresses
}

// newDetached takes over the file descriptor.
func newDetached(fd int, before net.Conn) net.Conn {
	return detached{os.NewFile(uintptr(fd), "socket"), before}
}

func (d detached) LocalAddr() net.Addr  { return d.before.LocalAddr() }
func (d detached) RemoteAddr() net.Addr { return d.before.RemoteAddr() }

// CloseWrite ends the stream to the other side, who can still be read.
func (d detached) CloseWrite() error {
	raw, err := d.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(control, err)
}

// readSocket reads once. The sockets never block, so that the runtime need not be told of the call.
func readSocket(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

// writeSocket writes as much as the socket takes, and says why that is not all.
func writeSocket(fd int, p []byte) (written int, _ syscall.Errno) {
	for written < len(p) {
		rest := p[written:]
		n, _, err := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case err == unix.EINTR:
		case err != 0:
			return written, err
		default:
			written += int(n)
		}
	}
	return written, 0
}
