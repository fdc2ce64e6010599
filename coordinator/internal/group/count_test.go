package group

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckCount(t *testing.T) {
	for _, test := range []struct {
		name     string
		recorded string // content of the file, "" for none
		begun    bool
		groups   int
		want     string // in the error
		after    string // content of the file
	}{
		{name: "a new folder", groups: 3, after: "3\n"},
		{name: "a new folder, one group", groups: 1},
		{name: "the same", recorded: "3\n", begun: true, groups: 3, after: "3\n"},
		{name: "a folder of one group", begun: true, groups: 1},
		{name: "more", begun: true, groups: 2, want: "created with groups: 1, and the configuration says 2"},
		{name: "fewer", recorded: "3\n", begun: true, groups: 2, want: "created with groups: 3", after: "3\n"},
		{name: "corrected before it began", recorded: "4\n", groups: 2, after: "2\n"},
		{name: "damaged", recorded: "x", begun: true, groups: 2, want: "does not hold a number", after: "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "n[1]") // a name that is a pattern
			must(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, countFile)
			if test.recorded != "" {
				must(t, os.WriteFile(path, []byte(test.recorded), 0o600))
			}
			if test.begun {
				must(t, os.WriteFile(filepath.Join(dir, "group-0.node"), []byte("n1\n"), 0o600))
			}
			err := CheckCount(dir, test.groups)
			if test.want == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want one that says %q", err, test.want)
			}
			if text, _ := os.ReadFile(path); string(text) != test.after {
				t.Errorf("the file holds %q, want %q", text, test.after)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
