package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)

// The design notes name the test behind each promise. One that was renamed or removed leaves a promise bare.
func TestDesignNotesNameTestsThatExist(t *testing.T) {
	sources, notes := testSources(t)
	for _, path := range notes {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := testName.FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s names only %d tests", path, len(names))
		}
		for _, name := range names {
			if !bytes.Contains(sources, []byte("\nfunc "+name+"(")) {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	}
}

// testSources is the text of all test files, and where the design notes are.
func testSources(t *testing.T) (sources []byte, notes []string) {
	t.Helper()
	err := filepath.WalkDir(moduleRoot(t), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "DESIGN.md":
			notes = append(notes, path)
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			sources = append(sources, text...)
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil || len(notes) < 3 {
		t.Fatalf("found %d design notes: %v", len(notes), err)
	}
	return sources, notes
}
