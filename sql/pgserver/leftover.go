package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// lockFile takes the folder for this process until the file is closed or the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		closeErr := f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("the folder %s is in use by another process", filepath.Dir(path))
		}
		return nil, errors.Join(err, closeErr)
	}
	return f, nil
}

// endLeftover ends a server that still runs on the data folder. We hold the folder's lock, so whoever
// started it is dead.
func endLeftover(ctx context.Context, data string) error {
	pid, _ := pidFile(data)
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		if pid <= 1 || !serves(pid, data) {
			return nil
		}
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the server that was left running (process %d): %w", pid, err)
		}
		if err := awaitGone(ctx, pid, data); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("the server that was left running (process %d) does not end", pid)
}

func awaitGone(ctx context.Context, pid int, data string) error {
	ctx, cancel := context.WithTimeout(ctx, immediateStop)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for serves(pid, data) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
	return nil
}

// serves reports whether the process is a server on the data folder, where a postmaster always stands:
// process numbers are used again, and we end nothing else.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(data)
	return err == nil && cwd == real
}
