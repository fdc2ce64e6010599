package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads CLOCK_BOOTTIME (clock_gettime(2)): monotonic, and it includes the time spent in suspend.
type boottime struct{}

func (boottime) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// systemClock has seen it work; a clock that vanishes leaves nothing to judge a lease by.
		panic("client: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// systemClock is the clock of a client that was given none.
func systemClock() Clock {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil { // Linux before 2.6.39, or a sandbox
		return monotonic{start: time.Now()}
	}
	return boottime{}
}
