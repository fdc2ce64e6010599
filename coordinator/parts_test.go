package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPartThatDoesNotStopIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan struct{})
		above := errors.New("stopped")
		ends := func(ctx context.Context) error { <-ctx.Done(); return above }
		hangs := func(context.Context) error { <-broken; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		err := runParts(ctx, time.Minute, []part{{"disk", hangs}, {"peers", hangs}, {"calls", ends}})
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}
		if err == nil || !errors.Is(err, above) || !strings.Contains(err.Error(), "peers: not stopped within 1m0s") {
			t.Errorf("got %v, want the part that hangs and what another said", err)
		}
		close(broken)
	})
}
