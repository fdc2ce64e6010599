package stage

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Folder makes a folder in which everything of a run lies, below dir or, where that is empty, below the system's
// temporary one. The caller removes it.
func Folder(dir string) (string, error) {
	const pattern = "lychgate-bench-" // never somebody's own files
	if dir == "" {
		return os.MkdirTemp("", pattern)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, pattern)
}

// Tell writes a line of progress with the time.
func Tell(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
