package group

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A test binary that is started with this variable set is a node, alone in its cluster, with its own clients. It says line by line
// what it found, what its clients ask for and what they are answered, until it is killed.
const powerEnv = "LYCHGATE_TEST_POWER_NODE"

// powerSpec says where the node's folder is, and what makes the names of this run's clients its own.
type powerSpec struct {
	Dir string
	Run int
}

// powerLine is one line of such a node.
type powerLine struct {
	Found  map[string]powerHolder `json:",omitempty"` // once, when it serves
	Worker int
	Try    *powerHolder `json:",omitempty"` // a client wants the worker's resource; without a client, it is given back
	Done   *powerHolder `json:",omitempty"` // that was acknowledged
}

// powerHolder is who has a resource; nobody without a client.
type powerHolder struct {
	Client string
	Token  uint64
}

const powerWorkers = 6

func powerResource(worker int) string { return fmt.Sprintf("r/%d", worker) }

func (s powerSpec) config() Config {
	return Config{
		Node: "n1", Dir: s.Dir, Members: []Member{{ID: "n1", Peer: "localhost:1"}}, Listen: "127.0.0.1:0",
		Cluster: "power", Lock: testLockConfig(),
		Limits: Limits{SnapshotEvery: 40, TrailingLogs: 10},
		Timing: Timing{Heartbeat: 40 * time.Millisecond, Snapshot: 20 * time.Millisecond},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

func powerProcess(text string) error {
	var spec powerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	g, err := New(spec.config())
	if err != nil {
		return err
	}
	out := &powerLines{encoder: json.NewEncoder(os.Stdout)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the parent's death ends it, too
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go powerWork(ctx, g, spec.Run, out)
	return g.Run(ctx)
}

type powerLines struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (l *powerLines) say(line powerLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.encoder.Encode(line) // the parent sees what is missing
}

func powerWork(ctx context.Context, g *Group, run int, out *powerLines) {
	for {
		if _, err := g.Read(ctx, func(m *lock.Machine) { out.say(powerLine{Found: powerFound(m)}) }); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-g.Changed():
		}
	}
	for worker := range powerWorkers {
		go powerWorker(ctx, g, run, worker, out)
	}
}

func powerFound(m *lock.Machine) map[string]powerHolder {
	found := make(map[string]powerHolder)
	for worker := range powerWorkers {
		name := powerResource(worker)
		for _, h := range m.Get(lease.Resource(name)).Holders {
			found[name] = powerHolder{string(h.Client), uint64(h.Token)}
		}
	}
	return found
}

// powerWorker takes its resource from whoever has it, and gives it back, time and again.
func powerWorker(ctx context.Context, g *Group, run, worker int, out *powerLines) {
	for n := 0; ; n++ {
		name := powerResource(worker)
		out.say(powerLine{Worker: worker, Try: &powerHolder{}})
		if _, err := g.Propose(ctx, lock.Break{Identity: "tenant", Resource: lease.Resource(name)}); err != nil {
			return
		}
		out.say(powerLine{Worker: worker, Done: &powerHolder{}})
		acquire := testAcquire(fmt.Sprintf("c%d-%d-%d", run, worker, n), "q", name, 0)
		acquire.TTL = time.Hour
		acquire.Lease = lease.NewID(0, [14]byte{byte(worker), byte(run >> 8), byte(run), byte(n >> 16), byte(n >> 8), byte(n)})
		out.say(powerLine{Worker: worker, Try: &powerHolder{Client: string(acquire.Client)}})
		outcome, err := g.Propose(ctx, acquire)
		granted, ok := outcome.Result.(lock.Granted)
		if err != nil || !ok {
			return
		}
		out.say(powerLine{Worker: worker, Done: &powerHolder{string(acquire.Client), uint64(granted.Token)}})
	}
}
