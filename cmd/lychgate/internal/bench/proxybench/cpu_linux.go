package proxybench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what a process has used of the processors so far, all of its threads together, ended ones too. Its
// clock has another resolution than the ticks of /proc/PID/stat: see clock_getcpuclockid(3).
func processorTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of the whole process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
