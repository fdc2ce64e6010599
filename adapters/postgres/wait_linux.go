package postgres

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop waits in one of two ways. While little happens, Go's own poller watches the loop's: the loop is a goroutine
// that is parked, and costs nothing. While much happens it waits in a system call of which the runtime knows nothing:
// being parked and found again takes more CPU than a small transaction, and so does a system call that the runtime
// knows of, from which it takes the processor away and then watches closely for a while.
const (
	brief = 5                    // milliseconds of a wait that the runtime does not know of; none is longer
	quick = 2 * time.Millisecond // between two wake-ups
	many  = 16                   // quick ones in a row, and much happens
)

// holders counts the loops of the process that hold a processor while they wait. One at least is left to the others:
// processors belong to the process, hence the only variable of this package. The garbage collector, which needs all of
// them, gets them by a signal, which ends the wait.
var holders atomic.Int32

// waiting is how a loop waits.
type waiting struct {
	busy   bool // much happens
	woken  time.Time
	quick  int             // wake-ups in a row
	parked *os.File        // what Go's poller watches: a copy of the loop's poll, while little happens
	raw    syscall.RawConn // of it
}

// wait takes the next events, or none where sessions want another turn or a signal came.
func (l *loop) wait() (n int) {
	if len(l.again) > 0 {
		n, _ = l.ask(0)
		return n
	}
	if l.waiting.busy {
		n, interrupted := l.hold()
		if n > 0 || interrupted {
			return n
		}
		l.waiting.busy = false
	}
	return l.park()
}

// hold waits for a short time without letting the processor go, if another is left.
func (l *loop) hold() (n int, interrupted bool) {
	defer holders.Add(-1)
	if holders.Add(1) >= l.processors {
		return 0, false
	}
	return l.ask(brief)
}

// park waits for as long as nothing happens.
func (l *loop) park() (n int) {
	w := &l.waiting
	if w.parked == nil && !l.openParked() {
		return l.waitAnnounced()
	}
	err := w.raw.Read(func(uintptr) bool {
		n, _ = l.ask(0)
		return n > 0
	})
	if err != nil {
		return l.waitAnnounced() // Go's poller does not take it
	}
	now := time.Now()
	if now.Sub(w.woken) < quick {
		w.quick++
	} else {
		w.quick = 0
	}
	w.woken = now
	if w.quick >= many {
		l.processors = int32(runtime.GOMAXPROCS(0)) // it may be changed at any time
		w.quick, w.busy = 0, l.processors > 1
		if w.busy {
			l.closeParked() // else the poller's thread would wake for every event of the loop
		}
	}
	return n
}

// openParked reports false if no more files can be had.
func (l *loop) openParked() bool {
	fd, err := unix.FcntlInt(uintptr(l.poll), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return false
	}
	l.waiting.parked, l.waiting.raw = file, raw
	return true
}

func (l *loop) closeParked() {
	if l.waiting.parked != nil {
		l.waiting.parked.Close()
		l.waiting.parked, l.waiting.raw = nil, nil
	}
}

// waitAnnounced is what remains where no file can be had to park on.
func (l *loop) waitAnnounced() (n int) {
	n, err := unix.EpollWait(l.poll, l.events, -1)
	if err != nil && !errors.Is(err, unix.EINTR) {
		panic(fmt.Sprintf("postgres: epoll_wait: %v", err)) // the instance is the loop's own
	}
	return max(n, 0)
}

// ask asks once, and waits at most so long.
func (l *loop) ask(milliseconds int) (n int, interrupted bool) {
	events, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.poll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), uintptr(milliseconds), 0, 0)
	if err != 0 {
		return 0, true
	}
	return int(events), false
}
