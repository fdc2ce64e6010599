package group

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A test binary that is started with this variable set is one node, driven by lines on its standard input.
const nodeEnv = "LYCHGATE_TEST_GROUP_NODE"

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(string) error{nodeEnv: nodeProcess, powerEnv: powerProcess} {
		if spec := os.Getenv(variable); spec != "" {
			if err := run(spec); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// nodeSpec is the configuration of a node process.
type nodeSpec struct {
	Node    string
	Dir     string
	Members []Member
}

func (s nodeSpec) config() Config {
	return Config{
		Node: s.Node, Dir: s.Dir, Members: s.Members, Cluster: "processes", Lock: testLockConfig(),
		Limits: Limits{SnapshotEvery: 50, TrailingLogs: 20},
		Timing: Timing{Snapshot: 200 * time.Millisecond},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", s.Node),
	}
}

// question is one line to a node process, reply one line from it.
type question struct {
	Op       string // "acquire", "tick", "digest", "leader"
	Resource string
	Request  string
	ID       byte
}

type reply struct {
	Err     string
	Index   uint64
	Token   uint64
	Retried bool
	Digest  string
	Leader  string
}

// nodeProcess runs a node until its standard input ends.
func nodeProcess(spec string) error {
	var s nodeSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	g, err := New(s.config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer cancel()
		answerAll(ctx, g, os.Stdin, os.Stdout)
	})
	err = g.Run(ctx)
	return err
}

func answerAll(ctx context.Context, g *Group, in io.Reader, out io.Writer) {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q question
		if decoder.Decode(&q) != nil {
			return
		}
		if encoder.Encode(answerOne(ctx, g, q)) != nil {
			return
		}
	}
}

func answerOne(ctx context.Context, g *Group, q question) reply {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var r reply
	r.Leader, _ = g.Leader()
	if q.Op == "digest" {
		g.View(func(m *lock.Machine) {
			digest := m.Digest()
			r.Digest, r.Index = fmt.Sprintf("%x", digest[:8]), m.Info().Index
		})
		return r
	}
	var cmd lock.Command = lock.Tick{}
	if q.Op == "acquire" {
		acquire := testAcquire("client", q.Request, q.Resource, q.ID)
		acquire.TTL = time.Hour
		cmd = acquire
	}
	outcome, err := g.Propose(ctx, cmd)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	r.Index = outcome.Index
	switch result := outcome.Result.(type) {
	case lock.Granted:
		r.Token, r.Retried = uint64(result.Token), result.Retried
	case lock.Refused:
		r.Err = result.Reason.String()
	default:
	}
	return r
}

// process is a node in a process of its own.
type process struct {
	t       *testing.T
	spec    nodeSpec
	command *exec.Cmd
	in      io.WriteCloser
	encoder *json.Encoder
	lines   *bufio.Reader
}

func startProcess(t *testing.T, spec nodeSpec) *process {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, spec: spec, command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), nodeEnv+"="+string(text))
	p.command.Stderr = t.Output()
	if p.in, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.encoder, p.lines = json.NewEncoder(p.in), bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask sends a question and waits for its reply. It fails the test if the process is gone.
func (p *process) ask(q question) reply {
	p.t.Helper()
	if err := p.encoder.Encode(q); err != nil {
		p.t.Fatalf("%s: %v", p.spec.Node, err)
	}
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("%s: %v", p.spec.Node, err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		p.t.Fatalf("%s: %v", p.spec.Node, err)
	}
	return r
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // it says that it was killed
}

// stop asks the process to end, and expects that it does so without an error.
func (p *process) stop() {
	p.t.Helper()
	if err := p.in.Close(); err != nil {
		p.t.Error(err)
	}
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("%s: %v", p.spec.Node, err)
	}
}
