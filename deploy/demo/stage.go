package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// stage is everything that runs during the story. All of it is on free loopback ports and under one folder.
type stage struct {
	dir, binary string
	postgres    *pgserver.Server
	nodes       []*node
	proxy       *process
	proxyAddr   string
	adminAddr   string
}

type node struct {
	id               string
	peer, grpc, http string
	*process
}

// process is a child of the demo in a process group of its own, with its output in a file.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when it has been waited for
}

func (s *stage) start(name string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(s.dir, name+".log"), exited: make(chan struct{})}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p.cmd = exec.Command(s.binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // joined by end
		defer close(p.exited)
		_ = p.cmd.Wait() // its log says why it ended
	}()
	return p, nil
}

// end stops the process with the signal and waits for it; SIGKILL follows after ten seconds.
func (p *process) end(signal syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal) // already gone: exited says so
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func (s *stage) close() {
	s.proxy.end(syscall.SIGTERM)
	for _, n := range s.nodes {
		n.end(syscall.SIGTERM)
	}
	if s.postgres != nil {
		_ = s.postgres.Stop() // a throw-away server: its folder goes next
	}
}

// logs is the tail of every log, for a story that came out wrong.
func (s *stage) logs() string {
	var b strings.Builder
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "\n--- the end of %s\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return b.String()
}

func (s *stage) startPostgres(ctx context.Context) error {
	log, err := os.Create(filepath.Join(s.dir, "postgres.log"))
	if err != nil {
		return err
	}
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{Log: log})
	return err
}

const coordinatorConfig = `node: %s
dir: %s
members: %s
lease: {default_ttl: %[4]s, min_ttl: %[4]s}
log: {level: info}
`

func (s *stage) startCoordinators(ctx context.Context, ttl time.Duration) error {
	addrs, err := freeport.Addresses(9)
	if err != nil {
		return err
	}
	var members []string
	for i := range 3 {
		n := &node{id: fmt.Sprintf("n%d", i+1), peer: addrs[3*i], grpc: addrs[3*i+1], http: addrs[3*i+2]}
		s.nodes = append(s.nodes, n)
		members = append(members, fmt.Sprintf("{id: %s, peer: %q, grpc: %q, http: %q}", n.id, n.peer, n.grpc, n.http))
	}
	for _, n := range s.nodes {
		path := filepath.Join(s.dir, n.id+".yaml")
		text := fmt.Sprintf(coordinatorConfig, n.id, filepath.Join(s.dir, n.id), "["+strings.Join(members, ", ")+"]", ttl)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if n.process, err = s.start("coordinator-"+n.id, "coordinator", "--config", path); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		if err := waitReady(ctx, n.process, n.http); err != nil {
			return err
		}
	}
	return nil
}

const proxyConfig = `node: demo
coordinators: [%s]
admin: %s
postgres:
  - listen: %s
    upstream: 127.0.0.1:%d
    database: app
    store: %q
    policy: require
log: {level: info}
`

func (s *stage) startProxy(ctx context.Context) error {
	addrs, err := freeport.Addresses(2)
	if err != nil {
		return err
	}
	s.proxyAddr, s.adminAddr = addrs[0], addrs[1]
	var urls []string
	for _, n := range s.nodes {
		urls = append(urls, fmt.Sprintf("%q", "http://"+n.http))
	}
	path := filepath.Join(s.dir, "proxy.yaml")
	text := fmt.Sprintf(proxyConfig, strings.Join(urls, ", "), s.adminAddr, s.proxyAddr, s.postgres.Port(),
		s.postgres.DSN("lychgate_proxy", "app"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if s.proxy, err = s.start("proxy", "proxy", "--config", path); err != nil {
		return err
	}
	return waitReady(ctx, s.proxy, s.adminAddr)
}

// waitReady polls the /readyz of a process until it says yes, or the process ends.
func waitReady(ctx context.Context, p *process, addr string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := get(ctx, "http://"+addr+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready", p.name)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		}
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// leader asks the nodes that are alive who leads.
func (s *stage) leader(ctx context.Context) (*node, error) {
	var last error
	for _, n := range s.nodes {
		body, err := get(ctx, "http://"+n.http+"/cluster/status")
		if err != nil {
			last = err
			continue
		}
		var status struct{ Leader string }
		if err := json.Unmarshal(body, &status); err != nil {
			return nil, err
		}
		for _, n := range s.nodes {
			if n.id == status.Leader {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("no leader is known: %w", last)
}

// psql runs one file of statements as the superuser, past the proxy.
func (s *stage) psql(ctx context.Context, user, database, sql string) (string, error) {
	cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-A", "-t", "-F", " | ", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose",
		"-v", "SHOW_CONTEXT=never", "-c", sql, s.postgres.DSN(user, database))
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", errors.New(text)
	}
	return text, nil
}

// lychgate runs one command of the binary to its end.
func (s *stage) lychgate(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, s.binary, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lychgate %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// actor is the demo's end of a worker process.
type actor struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func (s *stage) actor(name, resource string, ttl time.Duration) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, n := range s.nodes {
		addrs = append(addrs, n.grpc)
	}
	a := &actor{name: name, cmd: exec.Command(self, "worker", "-addrs", strings.Join(addrs, ","), "-name", name,
		"-resource", resource, "-ttl", ttl.String())}
	// The worker and its psql are stopped and resumed together.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(s.dir, "worker-"+name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.cmd.Stderr = log
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.lines = bufio.NewScanner(stdout)
	return a, a.cmd.Start()
}

// ask sends one request to the worker and waits for its answer.
func (a *actor) ask(r request) (answer, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := fmt.Fprintf(a.stdin, "%s\n", line); err != nil {
		return answer{}, fmt.Errorf("worker %s is gone: %w", a.name, err)
	}
	if !a.lines.Scan() {
		return answer{}, fmt.Errorf("worker %s is gone: %w", a.name, errors.Join(a.lines.Err(), io.EOF))
	}
	var got answer
	if err := json.Unmarshal(a.lines.Bytes(), &got); err != nil {
		return answer{}, err
	}
	if got.Error != "" {
		return got, errors.New(got.Error)
	}
	return got, nil
}

// signal reaches the worker and its psql.
func (a *actor) signal(signal syscall.Signal) error { return syscall.Kill(-a.cmd.Process.Pid, signal) }

func (a *actor) close() {
	if a == nil || a.cmd.Process == nil {
		return
	}
	a.stdin.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = a.signal(syscall.SIGKILL) })
	defer timer.Stop()
	_ = a.cmd.Wait()
}
