package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// At SIGHUP a coordinator and a gateway take rules and tokens anew, all or nothing.
func TestRulesAreTakenAtSIGHUP(t *testing.T) {
	dir := t.TempDir()
	free := freeAddresses(t, 8)
	tokens := filepath.Join(dir, "tokens")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token := func(identity, token string) string {
		sum := sha256.Sum256([]byte(token))
		return identity + " " + hex.EncodeToString(sum[:]) + "\n"
	}
	const heads = "insecure: true\n"
	node := heads + fmt.Sprintf("node: n1\ndir: %s\nmembers: [{id: n1, peer: %q, grpc: %q, http: %q}]\n", filepath.Join(dir, "n1"), free[0], free[1], free[2])
	gate := heads + fmt.Sprintf("coordinators: [%q]\nlisten: {grpc: %q, http: %q}\n", free[6], free[3], free[4])
	rules := func(prefix string) string {
		return fmt.Sprintf("access:\n  tokens: %s\n  rules:\n    - {identity: worker, prefix: %q, allow: [acquire]}\n", tokens, prefix)
	}
	write(tokens, token("worker", "one"))
	all := map[string]struct{ path, text string }{
		"coordinator": {filepath.Join(dir, "n1.yaml"), node}, "gateway": {filepath.Join(dir, "gateway.yaml"), gate},
	}
	servers := map[string]*logged{}
	startLogged(t, "coordinator", "--node", "n1", "--dir", filepath.Join(dir, "open"), "--set", "members[0].id=n1", // asks nobody for rights
		"--set", "members[0].peer="+free[5], "--set", "members[0].grpc="+free[6], "--set", "members[0].http="+free[7])
	for _, name := range []string{"coordinator", "gateway"} {
		write(all[name].path, all[name].text+rules("a/"))
		servers[name] = startLogged(t, name, "--config", all[name].path)
	}
	asks := 0
	acquire := func(addr, token, resource string) int {
		t.Helper()
		asks++
		body := fmt.Sprintf(`{"resource": %q, "client_id": "c", "request_id": "%d"}`, fmt.Sprint(resource, asks), asks)
		request, err := http.NewRequest(http.MethodPost, "http://"+addr+"/lock/acquire", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	check := func(when, addr, token, resource string, want int) {
		t.Helper()
		if got := acquire(addr, token, resource); got != want {
			t.Errorf("%s: %s for %s at %s: %d, want %d", when, resource, token, addr, got, want)
		}
	}
	for _, name := range []string{"coordinator", "gateway"} {
		servers[name].await("msg=ready")
	}
	for _, addr := range []string{free[2], free[4]} {
		check("first", addr, "one", "a/", http.StatusOK)
		check("first", addr, "one", "b/", http.StatusForbidden)
	}
	// A bad token file beside good rules, and the other way round: neither counts.
	for _, name := range []string{"coordinator", "gateway"} {
		write(all[name].path, all[name].text+rules("b/"))
	}
	write(tokens, "rubbish")
	for _, name := range []string{"coordinator", "gateway"} {
		servers[name].hangUp("not taken, the old ones go on")
	}
	write(tokens, token("worker", "one"))
	for _, name := range []string{"coordinator", "gateway"} {
		write(all[name].path, all[name].text+rules("b/")+"    - {identity: worker, prefix: c/, allow: [nothing]}\n")
		servers[name].hangUp("not taken, the old ones go on")
	}
	for _, addr := range []string{free[2], free[4]} {
		check("after bad files", addr, "one", "a/", http.StatusOK)
		check("after bad files", addr, "one", "b/", http.StatusForbidden)
	}
	write(tokens, token("worker", "two")) // by itself it would count in 5 to 10 s
	for _, name := range []string{"coordinator", "gateway"} {
		write(all[name].path, all[name].text+rules("b/"))
		servers[name].hangUp("access rules taken anew")
	}
	for _, addr := range []string{free[2], free[4]} {
		check("at last", addr, "one", "b/", http.StatusUnauthorized)
		check("at last", addr, "two", "a/", http.StatusForbidden)
		check("at last", addr, "two", "b/", http.StatusOK)
	}
}

// logged is a server whose log is read.
type logged struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func startLogged(t *testing.T, args ...string) *logged {
	t.Helper()
	l := &logged{t: t, cmd: exec.Command("lychgate", args...), lines: make(chan string, 1000)}
	stderr, err := l.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.lines)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			l.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Signal(syscall.SIGTERM)
		for range l.lines { // to its end
		}
		if err := l.cmd.Wait(); err != nil {
			t.Errorf("%v ended with %v", args, err)
		}
	})
	return l
}

func (l *logged) await(text string) {
	l.t.Helper()
	timeout := time.After(runTimeout)
	for {
		select {
		case line, ok := <-l.lines:
			if !ok {
				l.t.Fatalf("the log has ended before %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
			l.t.Log(line)
		case <-timeout:
			l.t.Fatalf("the log does not say %q", text)
		}
	}
}

func (l *logged) hangUp(answer string) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		l.t.Fatal(err)
	}
	l.await(answer)
}
