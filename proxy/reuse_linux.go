package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handOver is how long a listener that stops goes on to accept what had begun to connect before the next process got
// everything: closing a listener resets what stands in its queue.
const handOver = 200 * time.Millisecond

// listenAt listens, with reuse beside other processes of the same user.
func listenAt(address string, reuse bool) (net.Listener, error) {
	config := net.ListenConfig{}
	if reuse {
		config.Control = func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			})
			return errors.Join(err, failed)
		}
	}
	return config.Listen(context.Background(), "tcp", address)
}

// steerAway has the kernel give new connections to the second of those that listen at the address, which is the next
// process where this one came first, and to anybody where there is no second.
func steerAway(l net.Listener) error {
	conn, ok := l.(syscall.Conn)
	if !ok {
		return errors.New("not a socket")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	second := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 1}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
			&unix.SockFprog{Len: uint16(len(second)), Filter: &second[0]})
	})
	return errors.Join(err, failed)
}
