package group

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestBridgeKeepsValuesAndLowersLevels(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	logger := newBridge(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))

	logger.Error("failed to heartbeat to", "peer", "n2", "servers", hclog.Fmt("%d of %d", 1, 3))
	line := out.String()
	for _, want := range []string{"level=WARN", `msg="failed to heartbeat to"`, "peer=n2", `servers="1 of 3"`, "component=raft"} {
		if !strings.Contains(line, want) {
			t.Errorf("the line %q lacks %q", line, want)
		}
	}

	out.Reset()
	logger.Named("snapshot").With("id", 7).Warn("slow")
	if line := out.String(); !strings.Contains(line, "level=INFO") || !strings.Contains(line, "id=7") {
		t.Errorf("a warning of a named logger gives %q", line)
	}

	out.Reset()
	for range 100 {
		logger.Error("failed to heartbeat to", "peer", "n2")
	}
	if out.Len() != 0 {
		t.Errorf("a message that was logged a moment ago is repeated: %q", out.String())
	}

	out.Reset()
	logger.Info("entering follower state")
	logger.Debug("accepted connection")
	if out.Len() != 0 {
		t.Errorf("at level info the library's chatter is logged: %q", out.String())
	}
	level.Set(slog.LevelDebug)
	logger.Info("entering follower state")
	if line := out.String(); !strings.Contains(line, "level=DEBUG") {
		t.Errorf("at level debug the library's info gives %q", line)
	}
}
