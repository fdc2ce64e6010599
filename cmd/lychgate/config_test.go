package main

import (
	"path/filepath"
	"testing"
)

// Every example under deploy/config is one that a server would start with.
func TestExamplesAreGood(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), "deploy", "config", "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found %d examples (%v)", len(files), err)
	}
	for _, file := range files {
		if _, _, err := loadKind(file, ""); err != nil {
			t.Error(err)
		}
	}
}
