package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// trouble is one kind of fault.
type trouble struct {
	name   string
	weight int
	make   func(*soak, context.Context) error
}

var troubles = []trouble{
	{"proxy killed", 10, (*soak).killProxy},
	{"proxy restarted", 6, (*soak).restartProxy},
	{"proxy stopped", 10, (*soak).stopProxy},
	{"client killed", 10, (*soak).killClient},
	{"client stopped", 25, (*soak).stopClient},
	{"session ended in the server", 12, terminate("app", 1)},
	{"sessions ended in the server", 4, terminate("app", 100)},
	{"side connections ended", 8, terminate("lychgate_proxy", 100)},
	{"server process stopped", 5, (*soak).stopBackend},
	{"reload", 8, (*soak).reload},
	{"server crashed", 2, (*soak).crash},
}

// makeTrouble blocks for as long as the run is to last.
func (s *soak) makeTrouble(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.time)
	defer cancel()
	sum := 0
	for _, t := range troubles {
		sum += t.weight
	}
	said := time.Now()
	for i := 0; ; i++ {
		pause(ctx, time.Duration(100+s.dice.IntN(900))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		s.lookForTheDead()
		t := troubles[i%len(troubles)]
		if i >= len(troubles) { // each once, then at random
			n := s.dice.IntN(sum)
			at := slices.IndexFunc(troubles, func(t trouble) bool { n -= t.weight; return n < 0 })
			t = troubles[at]
		}
		s.acts[t.name]++
		if err := t.make(s, context.WithoutCancel(ctx)); err != nil {
			s.record.fault(fmt.Errorf("%s: %w", t.name, err))
		}
		if time.Since(said) > 30*time.Second {
			said = time.Now()
			fmt.Fprintln(s.out, s.record.line())
		}
	}
}

// lookForTheDead wants what nobody has killed to be there.
func (s *soak) lookForTheDead() {
	for _, p := range s.proxies {
		select {
		case <-p.process.exited:
			s.record.fault(fmt.Errorf("%s has ended by itself: %v", p.name, p.process.cmd.ProcessState))
		default:
		}
	}
}

// mortal is a proxy that may be killed.
func (s *soak) mortal() *proxy { return s.proxies[s.dice.IntN(len(s.proxies)-1)] }

func (s *soak) killProxy(ctx context.Context) error {
	p := s.mortal()
	p.process.kill()
	return s.startProxy(ctx, p)
}

func (s *soak) restartProxy(ctx context.Context) error {
	p := s.mortal()
	if !p.process.end() {
		s.record.fault(fmt.Errorf("%s: a stop ends in %v", p.name, p.process.cmd.ProcessState))
	}
	return s.startProxy(ctx, p)
}

func (s *soak) stopProxy(ctx context.Context) error {
	s.stopFor(ctx, s.proxies[s.dice.IntN(len(s.proxies))].process, 1500)
	return nil
}

func (s *soak) stopFor(ctx context.Context, p *process, milliseconds int) {
	p.signal(syscall.SIGSTOP)
	pause(ctx, time.Duration(s.dice.IntN(milliseconds))*time.Millisecond)
	p.signal(syscall.SIGCONT)
}

func (s *soak) killClient(context.Context) error {
	i := s.dice.IntN(len(s.clients))
	s.clients[i].kill()
	s.clients = slices.Delete(s.clients, i, i+1)
	return s.startClient()
}

func (s *soak) stopClient(ctx context.Context) error {
	s.stopFor(ctx, s.clients[s.dice.IntN(len(s.clients))], 2000)
	return nil
}

// terminate ends sessions of a role past the proxies.
func terminate(role string, most int) func(*soak, context.Context) error {
	return func(s *soak, ctx context.Context) error {
		return s.superuser(ctx, "app", fmt.Sprintf(`select pg_terminate_backend(pid) from (select pid from pg_stat_activity
			where usename = '%s' and datname = 'app' order by random() limit %d) victims`, role, most))
	}
}

// stopBackend stops a session's server process for less than a takeover waits, or for more.
func (s *soak) stopBackend(ctx context.Context) error {
	pid, err := s.askNumber(ctx, "select coalesce((select pid from pg_stat_activity where usename = 'app' and datname = 'app' order by random() limit 1), 0)")
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(int(pid), syscall.SIGSTOP); err != nil {
		return nil // it has gone meanwhile
	}
	pause(ctx, time.Duration(s.dice.IntN(7000))*time.Millisecond)
	_ = syscall.Kill(int(pid), syscall.SIGCONT) // it has gone meanwhile
	return nil
}

func (s *soak) reload(context.Context) error {
	for range 5 {
		s.proxies[s.dice.IntN(len(s.proxies))].process.signal(syscall.SIGHUP)
	}
	return nil
}

func (s *soak) crash(ctx context.Context) error {
	if err := s.postgres.Crash(); err != nil {
		return err
	}
	if err := s.postgres.Restart(ctx); err != nil {
		return err
	}
	for _, p := range s.proxies {
		if err := p.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
