package stage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Resident is what a process has in memory, in bytes: all of it, and the part that belongs to no file.
type Resident struct{ All, Private float64 }

// ResidentOf reads a process's memory from proc(5).
func ResidentOf(pid int) (Resident, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Resident{}, err
	}
	all, err := field(text, "VmRSS:")
	if err != nil {
		return Resident{}, err
	}
	private, err := field(text, "RssAnon:")
	return Resident{All: all, Private: private}, err
}

// field is a field of /proc/PID/status in bytes.
func field(text []byte, name string) (float64, error) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			kb, err := strconv.ParseFloat(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("there is no field %s", name)
}
