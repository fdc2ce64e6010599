package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
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

// Every key that a server knows stands in its example, so that a reader finds it.
func TestExamplesShowEveryKey(t *testing.T) {
	for _, kind := range configKinds {
		text, err := os.ReadFile(filepath.Join(moduleRoot(t), "deploy", "config", kind.Name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range config.Keys(kind.Zero) {
			if !regexp.MustCompile(`\b` + key + `:`).Match(text) {
				t.Errorf("%s.yaml does not show the key %q", kind.Name, key)
			}
		}
	}
}
