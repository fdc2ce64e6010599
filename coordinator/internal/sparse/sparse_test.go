package sparse

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFloodIsAFewLinesAndACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)), 3, time.Second)
		for range 1000 {
			l.Warn("refused", "peer", "10.0.0.9")
		}
		if got := strings.Count(out.String(), "msg=refused"); got != 3 {
			t.Errorf("%d lines of 1000, want 3", got)
		}
		time.Sleep(time.Second)
		out.Reset()
		l.Warn("refused", "peer", "10.0.0.9")
		if !strings.Contains(out.String(), "suppressed=997") {
			t.Errorf("the next line does not count what was held back: %s", out.String())
		}
		time.Sleep(time.Minute)
		out.Reset()
		for range 10 {
			l.Warn("refused")
		}
		if got := strings.Count(out.String(), "msg=refused"); got != 3 {
			t.Errorf("%d lines after a quiet minute, want a burst of 3", got)
		}
	})
}
