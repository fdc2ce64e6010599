//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// host is a network namespace with one address on the bridge.
type host struct {
	name, address string
}

// mac is its network card's.
func (h *host) mac() string {
	var a, b, c, d byte
	_, _ = fmt.Sscanf(h.address, "%d.%d.%d.%d", &a, &b, &c, &d) // addresses are our own
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", a, b, c, d)
}

// command is one that runs on the host.
func (h *host) command(name string, args ...string) *exec.Cmd {
	if h.name == "db" {
		return exec.Command(name, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", h.name, name}, args...)...)
}

// ip runs iproute2 with words separated by blanks.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// service is a process that comes and goes on one host.
type service struct {
	*host
	args   []string
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

func (s *service) start(binary, logs string) error {
	log, err := os.OpenFile(filepath.Join(logs, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.command(binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	exited, cmd := make(chan struct{}), s.cmd
	s.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is killed all the time
	}()
	return nil
}

func (s *service) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) } // gone already: it is started again

func (s *service) kill() {
	s.signal(syscall.SIGKILL)
	<-s.exited
}
