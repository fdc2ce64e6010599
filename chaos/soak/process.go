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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child with its errors, and a proxy's log, in a file.
type process struct {
	name   string
	cmd    *exec.Cmd
	input  io.Closer     // a client ends when it is closed
	exited chan struct{} // closed when it has been waited for, and all that it told is taken
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // gone already: it has ended another way

// kill ends it at once.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// end lets it end by itself, for a while, and reports whether it did and all was well.
func (p *process) end() bool {
	p.signal(syscall.SIGCONT)
	if p.input != nil {
		p.input.Close()
	} else {
		p.signal(syscall.SIGTERM)
	}
	select {
	case <-p.exited:
		return p.cmd.ProcessState.Success()
	case <-time.After(30 * time.Second):
		p.kill()
		return false
	}
}

func (s *soak) logFile(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// proxy is one address; the process behind it comes and goes.
type proxy struct {
	name, listen, admin string
	process             *process
}

const proxyConfig = `node: %s
coordinators: [%s]
cluster: %s
admin: %s
drain_timeout: 5s
postgres:
  - listen: %s
    upstream: 127.0.0.1:%d
    database: app
    store: %q
    policy: %s
    takeover_timeout: 5s
log: {level: info}
`

func (s *soak) startProxy(ctx context.Context, p *proxy) error {
	policy := "require"
	if s.options.unfenced {
		policy = "allow"
	}
	path := filepath.Join(s.dir, p.name+".yaml")
	text := fmt.Sprintf(proxyConfig, p.name, s.issuer.address, cluster, p.admin, p.listen, s.postgres.Port(),
		s.postgres.DSN("lychgate_proxy", "app"), policy)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := s.logFile(p.name)
	if err != nil {
		return err
	}
	defer log.Close()
	child := &process{name: p.name, cmd: exec.Command(s.options.binary, "proxy", "--config", path), exited: make(chan struct{})}
	child.cmd.Stdout, child.cmd.Stderr = log, log
	if err := child.cmd.Start(); err != nil {
		return err
	}
	p.process = child
	go func() {
		defer close(child.exited)
		_ = child.cmd.Wait() // its state is looked at where it matters
	}()
	return p.awaitReady(ctx)
}

// awaitReady polls /readyz.
func (p *proxy) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := p.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-p.process.exited:
			return fmt.Errorf("%s has ended by itself", p.name)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *proxy) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // a connection that is kept would be one of its descriptors
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// figures are what a proxy says of itself.
type figures struct{ files, goroutines, resident, bindings float64 }

func (p *proxy) figures(ctx context.Context) (f figures, err error) {
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, _ := strconv.ParseFloat(value, 64) // 0 where it is none
		switch name, _, _ := strings.Cut(name, "{"); name {
		case "process_open_fds":
			f.files = number
		case "go_goroutines":
			f.goroutines = number
		case "process_resident_memory_bytes":
			f.resident = number
		case "lychgate_bindings":
			f.bindings += number
		}
	}
	if f.files == 0 || f.goroutines == 0 || f.resident == 0 {
		return f, fmt.Errorf("%s does not say what it holds", p.name)
	}
	return f, nil
}

// startClient starts a client under a name of its own.
func (s *soak) startClient() error {
	s.started++
	o := orders{
		Name: fmt.Sprintf("c%d", s.started), Seed: s.dice.Uint64(), Tickets: s.issuer.address + "/ticket",
		Workers: s.options.workers, Unfenced: s.options.unfenced,
	}
	for _, p := range s.proxies {
		o.Proxies = append(o.Proxies, p.listen)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := s.logFile("clients")
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{name: o.Name, cmd: exec.Command(self, "client"), exited: make(chan struct{})}
	p.cmd.Stderr = log
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.input = in
	s.clients = append(s.clients, p)
	go func() {
		defer close(p.exited)
		s.record.take(bufio.NewReader(out)) // up to the end of the process
		_ = p.cmd.Wait()                    // its state is looked at where it matters
	}()
	return json.NewEncoder(in).Encode(o)
}
