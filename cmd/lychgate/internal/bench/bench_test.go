package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// The test binary is also the program whose workers the bench starts. What they claim is in this variable.
const claims = "LYCHGATE_BENCH_TEST_CLAIMS"

func TestMain(m *testing.M) {
	if claim, ok := os.LookupEnv(claims); ok && len(os.Args) >= 3 && os.Args[2] == "worker" {
		if err := claimed(claim); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// claimed is a worker process that tells what it was told to.
func claimed(claim string) error {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err != nil {
		return err
	}
	var p load.Plan
	if err := json.Unmarshal(line, &p); err != nil {
		return err
	}
	fmt.Println("ready")
	now := load.Now()
	sum := load.Summary{From: now, To: now + int64(p.Duration)}
	records := []load.Record{{Asked: now, Granted: now + 1000, Released: now + 2000, Answered: now + 3000, Token: 1}}
	switch claim {
	case "well":
	case "two holders":
		records = append(records, load.Record{Worker: 1, Asked: now, Granted: now + 1500, Released: now + 9000, Answered: now + 9500, Token: 2})
	case "violations":
		sum.Violations = []string{"a lease ended before its time"}
	case "failures":
		sum.Fails, sum.Fail = 3, "acquire: what a pity"
	case "death":
		return errors.New("out of luck")
	}
	if err := load.WriteRecords(p.Records, records); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(sum)
}

// cluster is a node that knows its leader, which is all that the bench asks of a cluster that runs already.
type cluster struct {
	lockpb.UnimplementedClusterServer
}

func (cluster) Status(context.Context, *lockpb.StatusRequest) (*lockpb.StatusResponse, error) {
	return &lockpb.StatusResponse{Node: "n1", Leader: "n1"}, nil
}

func startCluster(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	lockpb.RegisterClusterServer(s, cluster{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func configFor(t *testing.T, claim string) Config {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(claims, claim)
	return Config{Program: program, Addrs: []string{startCluster(t)}, Dir: t.TempDir(), Only: []string{"cycles"}, Quick: true, Workers: []int{1}, Progress: io.Discard}
}

func TestARunThatWentWell(t *testing.T) {
	c := configFor(t, "well")
	report, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 3 || report.Results[0].Name != "lock_cycles_per_s_w1" || report.Results[0].Peer != nil {
		t.Errorf("got %+v", report.Results)
	}
	if left, err := filepath.Glob(filepath.Join(c.Dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Whatever is wrong, nothing is reported, and the folder is kept and named.
func TestARunThatIsRefused(t *testing.T) {
	for claim, want := range map[string]string{
		"two holders": "an invariant did not hold: resource 0 was granted to worker 1",
		"violations":  "an invariant did not hold: a lease ended before its time",
		"failures":    "3 calls failed: acquire: what a pity",
		"death":       "out of luck",
	} {
		t.Run(claim, func(t *testing.T) {
			c := configFor(t, claim)
			report, err := Run(t.Context(), c)
			if report != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, %v, want no report and %q", report, err, want)
			}
			if broken := strings.HasPrefix(want, "an invariant"); errors.Is(err, ErrViolated) != broken {
				t.Errorf("ErrViolated is %v, want %v", !broken, broken)
			}
			left, _ := filepath.Glob(filepath.Join(c.Dir, "*"))
			if len(left) != 1 || !strings.Contains(err.Error(), left[0]) {
				t.Errorf("kept %v; the error says %v", left, err)
			}
		})
	}
}

func TestARunThatIsStopped(t *testing.T) {
	c := configFor(t, "well")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	report, err := Run(ctx, c)
	if report != nil || !errors.Is(err, enough) {
		t.Errorf("got %v, %v", report, err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPhasesAreChosen(t *testing.T) {
	for _, tt := range []struct {
		config Config
		n      int
		err    string
	}{
		{Config{}, len(phases), ""},
		{Config{Only: []string{"memory", "cycles"}}, 2, ""},
		{Config{Only: []string{"cylces"}}, 0, `there is no phase "cylces"; known are cycles, contended`},
		{Config{Addrs: []string{"x"}}, 3, ""},
		{Config{Addrs: []string{"x"}, Only: []string{"failover"}}, 0, "failover kills or fills the nodes"},
	} {
		got, err := tt.config.chosen()
		if tt.err == "" && err != nil || len(got) != tt.n {
			t.Errorf("%+v: got %d phases, %v, want %d", tt.config, len(got), err, tt.n)
		}
		if tt.err != "" && (!errors.Is(err, figures.ErrUsage) || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%+v: got %v, want %s", tt.config, err, tt.err)
		}
	}
}

// The full sizes are those of the targets.
func TestTargets(t *testing.T) {
	if got := fullSize.capacityB.operations(); got < 69_999 || got > 70_001 {
		t.Errorf("capacity-b asks for %.0f operations a second, want 70,000", got)
	}
	if got := fullSize.capacityA.operations(); got != 6000 {
		t.Errorf("capacity-a asks for %.0f operations a second, want 6,000", got)
	}
}

func TestChildrenDoNotOutliveTheRun(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(claims, "well")
	var c stage.Children
	s := &existing{program: program}
	cmd := s.worker()
	in, err := cmd.StdinPipe() // it waits for its plan
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p, err := c.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if !p.Ended() {
		t.Error("a child lives on")
	}
	if _, err := c.Start(s.worker()); !errors.Is(err, stage.ErrClosing) {
		t.Errorf("got %v, want that nothing starts any more", err)
	}
}
