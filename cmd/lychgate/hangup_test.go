package main

import (
	"bufio"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that is sent SIGHUP and has nothing to take anew says so, goes on, and ends well when it is asked to.
func TestServersSurviveSIGHUP(t *testing.T) {
	free := freeAddresses(t, 3)
	started := map[string]string{"proxy": "proxy started", "coordinator": "msg=ready"}
	says := map[string]string{"proxy": "configuration taken anew", "coordinator": "no access rules to take anew"}
	for name, args := range map[string][]string{
		"proxy": {
			"proxy", "--admin", "127.0.0.1:0", "--set", "postgres[0].listen=127.0.0.1:0", "--set", "postgres[0].upstream=127.0.0.1:1",
			"--set", "postgres[0].database=app", "--set", "postgres[0].store=postgres://lychgate_proxy@127.0.0.1:1/app",
		},
		"coordinator": {
			"coordinator", "--node", "n1", "--dir", t.TempDir(), "--set", "members[0].id=n1", "--set", "members[0].peer=" + free[0],
			"--set", "members[0].grpc=" + free[1], "--set", "members[0].http=" + free[2],
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("lychgate", args...)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			watchdog := time.AfterFunc(runTimeout, func() { _ = cmd.Process.Kill() })
			defer watchdog.Stop()
			awaits := []string{started[name], says[name], ""}
			sends := []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}
			var log strings.Builder
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				log.WriteString(lines.Text() + "\n")
				if awaits[0] == "" || !strings.Contains(lines.Text(), awaits[0]) {
					continue
				}
				if err := cmd.Process.Signal(sends[0]); err != nil {
					t.Fatal(err)
				}
				awaits, sends = awaits[1:], sends[1:]
			}
			if err := cmd.Wait(); err != nil || len(sends) > 0 {
				t.Errorf("ended with %v before %q:\n%s", err, awaits[0], &log)
			}
		})
	}
}

// freeAddresses are different addresses that nobody listens at.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all of them at the end
		addrs[i] = l.Addr().String()
	}
	return addrs
}
