//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fault is one kind of trouble: it begins, and what it returns ends it.
type fault struct {
	name string
	do   func(s *stage, ctx context.Context) (heal func() error, err error)
}

var faults = []fault{
	{"coordinator killed", func(s *stage, _ context.Context) (func() error, error) { return s.killed(pick(s, s.nodes)) }},
	{"coordinator stopped", func(s *stage, _ context.Context) (func() error, error) { return stopped(pick(s, s.nodes).signal) }},
	{"coordinators parted", func(s *stage, _ context.Context) (func() error, error) {
		return s.parted(pick(s, s.nodes).host, true, true)
	}},
	{"coordinator hears, and is not heard", func(s *stage, _ context.Context) (func() error, error) {
		return s.parted(pick(s, s.nodes).host, true, false)
	}},
	{"coordinator is heard, and does not hear", func(s *stage, _ context.Context) (func() error, error) {
		return s.parted(pick(s, s.nodes).host, false, true)
	}},
	{"slow link", (*stage).slow},
	{"disk full", (*stage).diskFull},
	{"leadership transferred", (*stage).transfer},
	{"proxy killed", func(s *stage, _ context.Context) (func() error, error) { return s.killed(pick(s, s.proxies)) }},
	{"proxy stopped", func(s *stage, _ context.Context) (func() error, error) { return stopped(pick(s, s.proxies).signal) }},
	{"proxy cut off", func(s *stage, _ context.Context) (func() error, error) {
		return s.parted(pick(s, s.proxies).host, true, true)
	}},
	{"client stopped", func(s *stage, _ context.Context) (func() error, error) { return stopped(pick(s, s.clients).signal) }},
	{"client cut off", func(s *stage, _ context.Context) (func() error, error) {
		return s.parted(pick(s, s.clients).host, true, true)
	}},
	{"PostgreSQL restarted", func(s *stage, ctx context.Context) (func() error, error) { return nil, s.postgres.Restart(ctx) }},
	{"PostgreSQL crashed", func(s *stage, ctx context.Context) (func() error, error) {
		return func() error { return s.postgres.Restart(ctx) }, s.postgres.Crash()
	}},
}

func pick[T any](s *stage, all []T) T { return all[s.dice.IntN(len(all))] }

// makeTrouble makes one fault after the other, and heals each before the next; every kind comes once before any comes twice.
func (s *stage) makeTrouble(ctx context.Context) {
	until := time.Now().Add(s.options.time)
	var order []int
	for ctx.Err() == nil && time.Now().Before(until) {
		if len(order) == 0 {
			order = s.dice.Perm(len(faults))
		}
		f := faults[order[0]]
		order = order[1:]
		s.record.fault(s.since(), f.name)
		fmt.Fprintf(s.out, "%7.1fs %s\n", s.since().Seconds(), f.name)
		heal, err := f.do(s, ctx)
		if err != nil {
			s.record.broken(fmt.Errorf("%s: %w", f.name, err))
		}
		last := time.Duration(1000+s.dice.IntN(1500)) * time.Millisecond
		if f.name == "client stopped" || f.name == "client cut off" {
			last = ttl + time.Second // beyond its lease
		}
		pause(ctx, last)
		if heal != nil {
			if err := heal(); err != nil {
				s.record.broken(fmt.Errorf("heal %s: %w", f.name, err))
			}
		}
		pause(ctx, 700*time.Millisecond)
	}
}

func (s *stage) since() time.Duration { return time.Since(s.began) }

func (s *stage) killed(p *service) (func() error, error) {
	p.kill()
	return func() error { return p.start(s.options.binary, s.options.report) }, nil
}

func stopped(signal func(syscall.Signal)) (func() error, error) {
	signal(syscall.SIGSTOP)
	return func() error { signal(syscall.SIGCONT); return nil }, nil
}

// parted loses without a word what the host sends (out) and what is sent to it (in): its neighbours get a false address.
func (s *stage) parted(h *host, out, in bool) (func() error, error) {
	others := append([]*host{s.db}, s.hosts()...)
	each := func(address func(*host) string) error {
		for _, other := range others {
			if other == h {
				continue
			}
			if out {
				if err := neighbour(h, other.address, address(other)); err != nil {
					return err
				}
			}
			if in {
				if err := neighbour(other, h.address, address(h)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return func() error { return each((*host).mac) }, each(func(*host) string { return "02:00:00:00:de:ad" })
}

func neighbour(at *host, address, mac string) error {
	if at.name == "db" {
		return ip("neigh", "replace", address, "lladdr", mac, "dev", "br0", "nud", "permanent")
	}
	return ip("-n", at.name, "neigh", "replace", address, "lladdr", mac, "dev", "eth0", "nud", "permanent")
}

// slow lets little through what a host sends; what is more waits.
func (s *stage) slow(context.Context) (func() error, error) {
	h := pick(s, s.hosts())
	tc := func(args ...string) error {
		out, err := h.command("tc", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("tc %v: %w: %s", args, err, out)
		}
		return nil
	}
	return func() error { return tc("qdisc", "del", "dev", "eth0", "root") },
		tc("qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "128kbit", "burst", "4kb", "latency", "2s")
}

// diskFull leaves no room on a coordinator's disk. A node may end of it; then it is started again when there is room.
func (s *stage) diskFull(context.Context) (func() error, error) {
	n := pick(s, s.nodes)
	path := filepath.Join(n.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close() // it is full
	return func() error {
		if err := os.Remove(path); err != nil {
			return err
		}
		select {
		case <-n.exited:
			return n.start(s.options.binary, s.options.report)
		case <-time.After(200 * time.Millisecond):
			return nil
		}
	}, nil
}

// transfer asks for another leader. While there is none, or it is that node already, it is refused, and counted as that.
func (s *stage) transfer(ctx context.Context) (func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	to := pick(s, s.nodes).name
	out, err := exec.CommandContext(ctx, s.options.binary, "cluster", "transfer", "--to", to,
		"--address", strings.Join(s.addresses(7600), ",")).CombinedOutput()
	if err != nil {
		s.record.refused("leadership transferred", fmt.Sprintf("leadership not transferred: %v: %s", err, out))
	}
	return nil, nil
}
