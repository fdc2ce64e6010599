package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestExecuteTellsCodesApart(t *testing.T) {
	for line, want := range map[string]int{
		"version": exitOK, "help": exitOK, "": exitOK, "versoin": exitUsage, "version --no": exitUsage, "version a": exitUsage,
		"lock": exitOK, "config check /nowhere.yaml": exitFailure, "config check": exitUsage, "run": exitUsage,
	} {
		var stdout, stderr bytes.Buffer
		got := execute(t.Context(), strings.Fields(line), nil, &stdout, &stderr)
		if got != want {
			t.Errorf("%q: exit code %d, want %d: %s", line, got, want, &stderr)
		}
		if lines := strings.Count(stderr.String(), "\n"); lines != min(got, 1) {
			t.Errorf("%q: %d lines on stderr: %s", line, lines, &stderr)
		}
		if (got == exitOK) == (stdout.Len() == 0) {
			t.Errorf("%q: exit code %d and %d bytes on stdout", line, got, stdout.Len())
		}
	}
}

func TestMistypedCommandsAreSuggested(t *testing.T) {
	for line, want := range map[string]string{
		"aquire x": `did you mean "lychgate lock acquire"?`, "acquire x": `did you mean "lychgate lock acquire"?`, "versoin": `did you mean "version"?`,
		"lock aquire x": `did you mean "acquire"?`, "rotate": `did you mean "lychgate keys rotate"?`, "cluster sav": `did you mean "lychgate cluster snapshot save"?`,
		"xyzzy": `unknown command "xyzzy" for "lychgate" (see`,
	} {
		var stdout, stderr bytes.Buffer
		if code := execute(t.Context(), strings.Fields(line), nil, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", line, code, &stderr)
		}
	}
}

func TestEveryCommandHelps(t *testing.T) {
	root, _ := rootCommand()
	walk(root, func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.RunE == nil && c.Run == nil {
			t.Errorf("%s: no short help in the house's form, or nothing to run", c.CommandPath())
		}
		if c.HasParent() && !c.HasSubCommands() && c.Args == nil {
			t.Errorf("%s: says nothing about its arguments", c.CommandPath())
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, "lychgate "+strings.TrimPrefix(c.CommandPath(), "lychgate ")) {
			t.Errorf("%s: has no example of itself", c.CommandPath())
		}
		// A server's output is its log, that of run is its command's, that of token a line for a file; a worker of the bench speaks JSON anyway.
		silent := []string{"coordinator", "proxy", "gateway", "run", "token", "worker"}
		if !c.HasSubCommands() && c.Flags().Lookup("json") == nil && !slices.Contains(silent, c.Name()) {
			t.Errorf("%s: prints data, and has no --json", c.CommandPath())
		}
	})
}

func walk(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		walk(sub, do)
	}
}

func TestErrorsChooseTheirCode(t *testing.T) {
	err := usageError("--x is %q", "y")
	exit, ok := errors.AsType[*exitError](err)
	if !ok || exit.Code != exitUsage || err.Error() != `--x is "y"` {
		t.Errorf("got %v", err)
	}
	if silent := (&exitError{Code: 7}); silent.Error() != "exit status 7" || silent.Unwrap() != nil {
		t.Errorf("got %v", silent)
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine("a: x\n  b: y\r\n\nc"); got != "a: x; b: y; c" {
		t.Errorf("got %q", got)
	}
}
