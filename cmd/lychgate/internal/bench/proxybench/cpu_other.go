//go:build !linux

package proxybench

import (
	"errors"
	"time"
)

// processorTime cannot be had of another process here.
func processorTime(int) (time.Duration, error) {
	return 0, errors.New("the processor time of another process is read on Linux only")
}
