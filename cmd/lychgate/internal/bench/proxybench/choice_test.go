package proxybench

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

func TestWhatNobodyKnowsIsRefused(t *testing.T) {
	for _, tt := range []struct {
		config Config
		says   string
	}{
		{Config{}, ""},
		{Config{Only: []string{"idle", "load"}, Workloads: []string{"update"}, Protocols: []string{"simple"}}, ""},
		{Config{Only: []string{"laod"}}, `there is no phase "laod"; known are load, check, connect, takeover, idle`},
		{Config{Workloads: []string{"insert"}}, `there is no workload "insert"; known are select, update`},
		{Config{Protocols: []string{"copy"}}, `there is no protocol "copy"; known are simple, extended, prepared`},
	} {
		err := tt.config.check()
		if (err != nil) != (tt.says != "") || err != nil && (!errors.Is(err, figures.ErrUsage) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: got %v, want %q", tt.config, err, tt.says)
		}
	}
}

func TestWhatIsAskedForGoesBeforeTheSizes(t *testing.T) {
	if got := sizeOf(Config{}); got.idle != 1000 || !slices.Equal(got.clients, []int{1, 8, 64}) || got.rounds != 3 {
		t.Errorf("the sizes that the goals are for are %+v", got)
	}
	got := sizeOf(Config{Quick: true, Clients: []int{4}, Rounds: 7, Time: time.Minute, Workloads: []string{"update"}, Protocols: []string{"simple"}})
	if !slices.Equal(got.clients, []int{4}) || got.rounds != 7 || got.time != time.Minute || len(got.workloads) != 1 || len(got.protocols) != 1 {
		t.Errorf("got %+v", got)
	}
	for _, w := range Workloads() {
		if builtin[w] == "" {
			t.Errorf("pgbench has no name for %s", w)
		}
	}
}

// Whatever else the machine does is to meet all alike.
func TestTurnsAlternate(t *testing.T) {
	if a, b := turns(0), turns(1); !slices.Equal(a, []int{direct, pgBouncer, ours}) || !slices.Equal(b, []int{ours, pgBouncer, direct}) {
		t.Errorf("got %v and %v", a, b)
	}
}
