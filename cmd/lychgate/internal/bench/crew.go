package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// crew is a running worker process.
type crew struct {
	child  *stage.Child
	tell   func(string) // progress
	stdin  io.WriteCloser
	lines  chan string // of its standard output; closed at its end
	stderr *bytes.Buffer
}

// hire starts a worker process with a plan and waits until it says that everything stands.
func (r *run) hire(ctx context.Context, s side, p load.Plan, timeout time.Duration) (*crew, error) {
	cmd := s.worker()
	w := &crew{lines: make(chan string, 2), stderr: new(bytes.Buffer), tell: func(text string) { r.progress("    %s: %s", s.name(), text) }}
	cmd.Stderr = w.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not StdoutPipe: the child is waited for at once, which would close that under its reader.
	stdout, far, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	cmd.Stdout, w.stdin = far, stdin
	w.child, err = r.children.Start(cmd)
	_ = far.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, stdout.Close(), stdin.Close())
	}
	go w.read(stdout) // ends with the process
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		return nil, w.failed(err)
	}
	line, err := w.line(ctx, timeout)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: workers: %w", s.name(), p.Kind, err)
	}
	if line != "ready" {
		return nil, fmt.Errorf("%s, %s: the workers said %q", s.name(), p.Kind, line)
	}
	return w, nil
}

func (w *crew) read(stdout io.ReadCloser) {
	defer stdout.Close()
	defer close(w.lines)
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			w.lines <- strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			return
		}
	}
}

// line waits for the next line that is not about progress.
func (w *crew) line(ctx context.Context, timeout time.Duration) (string, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return "", w.failed(errors.New("they ended"))
			}
			if progress, ok := strings.CutPrefix(line, "progress "); ok {
				w.tell(progress)
				continue
			}
			return line, nil
		case <-timer.C:
			w.child.Kill()
			return "", fmt.Errorf("no word from them within %v", timeout)
		case <-ctx.Done():
			w.child.Kill()
			return "", context.Cause(ctx)
		}
	}
}

// failed adds what a process said before it ended.
func (w *crew) failed(err error) error {
	w.child.Kill()
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(w.stderr.String()))
}

// dismiss ends work that has no end of its own, as far as it goes by itself.
func (w *crew) dismiss() { _ = w.stdin.Close() } // a process that is gone says so elsewhere

// finish waits for the summary. It is an error if the workers saw an invariant broken.
func (w *crew) finish(ctx context.Context, timeout time.Duration) (load.Summary, error) {
	var s load.Summary
	line, err := w.line(ctx, timeout)
	if err != nil {
		return s, fmt.Errorf("workers: %w", err)
	}
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return s, fmt.Errorf("workers: summary %.80q: %w", line, err)
	}
	w.dismiss()
	<-w.child.Exited()
	return s, judgeSummary(s)
}
