package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// countFile says, in a node's folder, how many groups the cluster has. Which group a resource is in follows from that
// number, so it is fixed when the cluster is created. A folder without it is of a cluster of one group.
const countFile = "groups"

// CheckCount refuses a number of groups that is not the one that the node's folder was made with, and records the number
// in a folder of which no group has begun yet. The folder must exist.
func CheckCount(dir string, groups int) error {
	known, begun, err := recordedCount(dir)
	switch {
	case err != nil:
		return fmt.Errorf("read how many groups the cluster has: %w", err)
	case begun && known != groups:
		return fmt.Errorf("the cluster was created with groups: %d, and the configuration says %d. It cannot be changed: a resource "+
			"would be looked for in a group that knows nothing of its holder", known, groups)
	case known == groups:
		return nil
	}
	return WriteCount(dir, groups)
}

// WriteCount records the number of groups in a folder.
func WriteCount(dir string, groups int) error {
	err := writeWhole(filepath.Join(dir, countFile), strconv.Itoa(groups)+"\n")
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("record how many groups the cluster has: %w", err)
	}
	return nil
}

// recordedCount is the number in the folder, 1 if there is none, and whether a group has begun with it.
func recordedCount(dir string) (groups int, begun bool, err error) {
	owned, err := filepath.Glob(filepath.Join(escapePattern(dir), "group-*.node"))
	if err != nil {
		return 0, false, err
	}
	path := filepath.Join(dir, countFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, len(owned) > 0, nil
	}
	if err != nil {
		return 0, false, err
	}
	groups, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || groups < 1 {
		return 0, false, fmt.Errorf("%s does not hold a number", path)
	}
	return groups, len(owned) > 0, nil
}

// escapePattern keeps the characters of a path from being read as a pattern.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
