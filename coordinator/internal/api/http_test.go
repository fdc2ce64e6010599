package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// answer is an HTTP answer with its JSON.
type answer struct {
	code   int
	header http.Header
	text   string
	body   map[string]any
}

func (c *cluster) do(n *node, method, path, body string) answer {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.context(), method, n.http.URL+path, strings.NewReader(body))
	check(c.t, err)
	response, err := http.DefaultClient.Do(request)
	check(c.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(c.t, err)
	a := answer{code: response.StatusCode, header: response.Header, text: string(text)}
	if strings.Contains(response.Header.Get("Content-Type"), "json") {
		check(c.t, json.Unmarshal(text, &a.body))
	}
	return a
}

func TestLifeOfALockOverHTTP(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	held := c.do(n, "POST", "/lock/acquire",
		`{"resource":"ledger/eu","client_id":"A","request_id":"1","ttl":20000,"wait_timeout":0,"mode":"exclusive"}`)
	if held.code != http.StatusOK {
		t.Fatalf("acquire: %d %s", held.code, held.text)
	}
	id, _ := held.body["leaseId"].(string)
	token, _ := held.body["fencingToken"].(string) // 64-bit numbers are decimal strings
	expires, _ := held.body["expiresAt"].(string)
	ttl, _ := held.body["ttl"].(float64)
	signed, _ := held.body["ticket"].(string)
	at, err := time.Parse(time.RFC3339, expires)
	if len(id) != 32 || token == "" || token == "0" || ttl != 20000 || strings.Count(signed, ".") != 2 || err != nil || !at.After(time.Now()) {
		t.Errorf("acquire answered %s", held.text)
	}
	conflict := c.do(n, "POST", "/lock/acquire", `{"resource":"ledger/eu","clientId":"B","requestId":"1"}`)
	holder, _ := conflict.body["holder"].(map[string]any)
	if conflict.code != http.StatusConflict || conflict.body["reason"] != "HELD" || conflict.body["applied"] != "no" ||
		holder["clientId"] != "A" || holder["fencingToken"] != token || conflict.body["hint"] == "" {
		t.Errorf("conflict: %d %s", conflict.code, conflict.text)
	}
	get := c.do(n, "GET", "/lock/get?resource=ledger/eu", "")
	if get.code != http.StatusOK || !strings.Contains(get.text, `"clientId":"A"`) || strings.Contains(get.text, id) {
		t.Errorf("get: %d %s", get.code, get.text)
	}
	list := c.do(n, "GET", "/lock/list?prefix=ledger/&limit=10", "")
	if list.code != http.StatusOK || !strings.Contains(list.text, `"resource":"ledger/eu"`) || strings.Contains(list.text, id) {
		t.Errorf("list: %d %s", list.code, list.text)
	}
	for _, step := range []struct{ path, body, want string }{
		{"/lock/renew", `{"lease_id":"` + id + `"}`, `"fencingToken":"` + token + `"`},
		{"/lock/release", `{"lease_id":"` + id + `"}`, `"fencingToken":"` + token + `"`},
		{"/lock/cancel", `{"client_id":"A","request_id":"1"}`, `"was":"ENDED"`},
		{"/lock/break", `{"resource":"ledger/eu"}`, `"fencingToken":`},
	} {
		if got := c.do(n, "POST", step.path, step.body); got.code != http.StatusOK || !strings.Contains(got.text, step.want) {
			t.Errorf("%s: %d %s, want %s", step.path, got.code, got.text, step.want)
		}
	}
	gone := c.do(n, "POST", "/lock/renew", `{"lease_id":"`+id+`"}`)
	if gone.code != http.StatusNotFound || gone.body["reason"] != "LEASE_ENDED" || gone.body["applied"] != "no" {
		t.Errorf("renewal of what was released: %d %s", gone.code, gone.text)
	}
}

func TestBadInputOverHTTP(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	acquire := func(more string) string {
		return `{"resource":"r","client_id":"c","request_id":"1"` + more + `}`
	}
	for name, test := range map[string]struct {
		method, path, body string
		code               int
		reason, field      string
	}{
		"unknown field":           {"POST", "/lock/acquire", acquire(`,"wait":5`), 400, "INVALID", "wait"},
		"field of another case":   {"POST", "/lock/acquire", acquire(`,"TTL":5`), 400, "INVALID", "TTL"},
		"ttl 0":                   {"POST", "/lock/acquire", acquire(`,"ttl":0`), 400, "INVALID", "ttl"},
		"negative ttl":            {"POST", "/lock/acquire", acquire(`,"ttl":-1`), 400, "INVALID", "ttl"},
		"ttl of 2^31":             {"POST", "/lock/acquire", acquire(`,"ttl":2147483648`), 400, "INVALID", "ttl"},
		"ttl with a unit":         {"POST", "/lock/acquire", acquire(`,"ttl":"5s"`), 400, "INVALID", "ttl"},
		"fraction of a ttl":       {"POST", "/lock/acquire", acquire(`,"ttl":5000.5`), 400, "INVALID", "ttl"},
		"ttl outside the policy":  {"POST", "/lock/acquire", acquire(`,"ttl":1`), 400, "TTL_OUT_OF_RANGE", "ttl"},
		"wait outside the policy": {"POST", "/lock/acquire", acquire(`,"wait_timeout":999999999`), 400, "WAIT_TOO_LONG", "wait_timeout"},
		"unknown mode":            {"POST", "/lock/acquire", acquire(`,"mode":"both"`), 400, "INVALID", "mode"},
		"field given twice":       {"POST", "/lock/acquire", acquire(`,"clientId":"d"`), 400, "INVALID", ""},
		"resource of a number":    {"POST", "/lock/acquire", `{"resource":7}`, 400, "INVALID", "resource"},
		"empty resource":          {"POST", "/lock/acquire", `{"resource":""}`, 400, "INVALID", "resource"},
		"long resource":           {"POST", "/lock/acquire", `{"resource":"` + strings.Repeat("r", 257) + `"}`, 400, "INVALID", "resource"},
		"resource not UTF-8":      {"POST", "/lock/acquire", "{\"resource\":\"a\xff\"}", 400, "INVALID", "resource"},
		"resource not normalised": {"POST", "/lock/acquire", `{"resource":"a/./b"}`, 400, "INVALID", "resource"},
		"no request_id":           {"POST", "/lock/acquire", `{"resource":"r","client_id":"c"}`, 400, "INVALID", "request_id"},
		"empty body":              {"POST", "/lock/acquire", ``, 400, "INVALID", "resource"},
		"body cut":                {"POST", "/lock/acquire", `{"resource":"r"`, 400, "INVALID", ""},
		"a list":                  {"POST", "/lock/acquire", `[]`, 400, "INVALID", ""},
		"null":                    {"POST", "/lock/acquire", `null`, 400, "INVALID", ""},
		"two bodies":              {"POST", "/lock/acquire", acquire(``) + acquire(``), 400, "INVALID", ""},
		"long body":               {"POST", "/lock/acquire", acquire(`,"owner":"` + strings.Repeat("o", 1<<20) + `"`), 413, "INVALID", ""},
		"fields in the query":     {"POST", "/lock/acquire?ttl=5000", acquire(``), 400, "INVALID", "ttl"},
		"token for a lease id":    {"POST", "/lock/renew", `{"lease_id":"42"}`, 400, "INVALID", "lease_id"},
		"unknown lease":           {"POST", "/lock/renew", `{"lease_id":"` + strings.Repeat("0", 32) + `"}`, 404, "LEASE_ENDED", ""},
		"read by POST":            {"POST", "/lock/get", `{}`, 405, "INVALID", ""},
		"write by GET":            {"GET", "/lock/acquire?resource=r", ``, 405, "INVALID", ""},
		"no such path":            {"GET", "/lock/steal", ``, 404, "INVALID", ""},
		"unknown parameter":       {"GET", "/lock/get?resource=r&force=1", ``, 400, "INVALID", "force"},
		"parameter twice":         {"GET", "/lock/get?resource=r&resource=s", ``, 400, "INVALID", "resource"},
		"parameter not UTF-8":     {"GET", "/lock/get?resource=a%ff", ``, 400, "INVALID", "resource"},
		"limit of letters":        {"GET", "/lock/list?limit=all", ``, 400, "INVALID", "limit"},
		"limit too high":          {"GET", "/lock/list?limit=1001", ``, 400, "INVALID", "limit"},
		"bad query":               {"GET", "/lock/get?resource=%zz", ``, 400, "INVALID", ""},
		"parameter of status":     {"GET", "/cluster/status?x=1", ``, 400, "INVALID", "x"},
	} {
		got := c.do(n, test.method, test.path, test.body)
		field, _ := got.body["field"].(string)
		if got.code != test.code || got.body["reason"] != test.reason || field != test.field || got.body["applied"] != "no" || got.body["message"] == "" {
			t.Errorf("%s: %d %s, want %d %s field %q", name, got.code, got.text, test.code, test.reason, test.field)
		}
	}
	for path, hint := range map[string]string{"/lock/steal": "openapi.json", "/lock/acquire": "POST", "/lock/get?resource=%zz": "correct the request"} {
		if got := c.do(n, "GET", path, ""); !strings.Contains(fmt.Sprint(got.body["hint"]), hint) {
			t.Errorf("%s: got %s, want a hint with %q", path, got.text, hint)
		}
	}
	if got := c.do(n, "POST", "/lock/acquire", acquire(`,"ttl":"5s"`)); !strings.Contains(fmt.Sprint(got.body["message"]), "milliseconds") {
		t.Errorf("a ttl with a unit: got %s", got.text)
	}
	if list := c.do(n, "GET", "/lock/list", ""); !strings.HasSuffix(list.text, "}\n") {
		t.Errorf("got %q, want a line", list.text)
	}
	if list := c.do(n, "GET", "/lock/list", ""); strings.Contains(list.text, "clientId") {
		t.Errorf("something was granted: %s", list.text)
	}
}

// A page open in a browser of the same machine gets nothing done here.
func TestForeignPageIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	request, err := http.NewRequestWithContext(c.context(), http.MethodPost, c.nodes[0].http.URL+"/lock/break", strings.NewReader(`{"resource":"r"}`))
	check(t, err)
	request.Header.Set("Origin", "http://elsewhere.example")
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	var refused errorBody
	if err := json.NewDecoder(response.Body).Decode(&refused); err != nil || refused.Reason != "PERMISSION_DENIED" || refused.Applied != "no" {
		t.Errorf("got %+v, %v", refused, err)
	}
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("got %s", response.Status)
	}
}

// A body that is announced and never comes is answered in time, on a path that reads it and on one that does not.
func TestBodyThatNeverComes(t *testing.T) {
	unread := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "alive") })
	for name, handler := range map[string]http.Handler{"read": strict(unread), "unread": unread} {
		server := httptest.NewServer(prompt(50*time.Millisecond, patient, handler))
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		check(t, err)
		defer conn.Close()
		check(t, conn.SetDeadline(time.Now().Add(patient)))
		_, err = conn.Write([]byte("POST /lock/break HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{"))
		check(t, err)
		text, err := io.ReadAll(conn) // to the end: the connection must be closed, too
		if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 ") {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
	}
}

// A caller that asks and does not read lets go of its answer in time; one that waited before its answer has all of it.
func TestAnswerThatIsNotTaken(t *testing.T) {
	ended := make(chan error, 1)
	server := httptest.NewServer(prompt(patient, 50*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			time.Sleep(200 * time.Millisecond) // longer than an answer may take
			writeText(w, http.StatusOK, "granted")
			return
		}
		page := make([]byte, 1<<20)
		for {
			if _, err := w.Write(page); err != nil {
				ended <- err
				return
			}
		}
	})))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	check(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	check(t, err)
	select {
	case <-ended:
	case <-time.After(patient):
		t.Error("the answer is still being written")
	}
	response, err := http.Get(server.URL + "/waits")
	check(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "granted" {
		t.Errorf("got %q, %v", text, err)
	}
}

// The mark of a forwarded call is between nodes; over HTTP it has no effect.
func TestForwardMarkIsNotTakenFromHTTP(t *testing.T) {
	c := newCluster(t, 3)
	request, err := http.NewRequestWithContext(c.context(), http.MethodPost, c.followers()[0].http.URL+"/lock/acquire",
		strings.NewReader(`{"resource":"r","client_id":"c","request_id":"1"}`))
	check(t, err)
	request.Header.Set("Grpc-Metadata-"+forwardedKey, "n9")
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
}

// A waiting HTTP caller that closes its connection is detached like any other.
func TestHTTPCallerGoesAway(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	c.acquire(n, acquireOf("r", "A", "1", 0))
	ctx, leave := context.WithCancel(c.context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.http.URL+"/lock/acquire",
		strings.NewReader(`{"resource":"r","client_id":"B","request_id":"1","wait_timeout":20000}`))
	check(t, err)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			t.Error("answered")
		}
	}()
	c.untilWaiting("r", 1)
	leave()
	<-gone
	c.until("the waiter is detached", func() bool { return !c.look(n, "r").GetWaiters()[0].GetAttached() })
}

func TestHealthAndReadiness(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	for path, want := range map[string]string{"/livez": "alive\n", "/readyz": "ready\n"} {
		if got := c.do(n, "GET", path, ""); got.code != http.StatusOK || got.text != want {
			t.Errorf("%s: %d %q", path, got.code, got.text)
		}
	}
	for _, other := range c.nodes {
		c.disconnect(other)
	}
	for _, node := range c.nodes {
		c.until("the lost quorum shows", func() bool { return c.do(node, "GET", "/readyz", "").code == http.StatusServiceUnavailable })
	}
	if got := c.do(n, "GET", "/livez", ""); got.code != http.StatusOK {
		t.Errorf("/livez without a quorum: %d", got.code)
	}
}

func TestMetricsAreServed(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("very/secret/name", "A", "1", 0))
	_, err := n.locks.Acquire(c.context(), acquireOf("very/secret/name", "B", "1", 0))
	wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO)
	_, err = n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: strings.Repeat("0", 32)})
	wantRefusal(t, err, lockpb.Reason_LEASE_ENDED, lockpb.Applied_NO)
	text := c.do(n, "GET", "/metrics", "").text
	for _, want := range []string{
		`lychgate_acquire_duration_seconds_count{outcome="granted"} 1`,
		`lychgate_acquire_duration_seconds_count{outcome="conflict"} 1`,
		`lychgate_acquire_duration_seconds_count{outcome="timeout"} 0`,
		`lychgate_renew_duration_seconds_count{outcome="refused"} 1`,
		`lychgate_release_duration_seconds_count{outcome="done"} 0`,
		`lychgate_renewal_failures_total{reason="LEASE_ENDED"} 1`,
		`lychgate_leases_ended_total{cause="expired"} 0`,
		"lychgate_active_leases{group=\"0\"} 1\n", "lychgate_waiters{group=\"0\"} 0\n", "lychgate_leader{group=\"0\"} 1\n", "lychgate_elections_total 1\n",
		"lychgate_commit_duration_seconds_count ", "lychgate_batch_commands_count ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	for _, secret := range []string{"very/secret/name", held.GetLeaseId()} {
		if strings.Contains(text, secret) {
			t.Errorf("the metrics show %s", secret)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// The table of strict paths, the OpenAPI document and what the gateway serves are one.
func TestRESTPathsAreTheDocumentedOnes(t *testing.T) {
	c := newCluster(t, 1)
	served := c.do(c.nodes[0], "GET", "/openapi.json", "")
	if !bytes.Equal([]byte(served.text), lockpb.OpenAPI()) {
		t.Error("/openapi.json is another document")
	}
	documented, _ := served.body["paths"].(map[string]any)
	paths := restPaths()
	if got, want := slices.Sorted(maps.Keys(paths)), slices.Sorted(maps.Keys(documented)); !slices.Equal(got, want) {
		t.Fatalf("strict knows %v, documented are %v", got, want)
	}
	for path, methods := range documented {
		if _, ok := methods.(map[string]any)[strings.ToLower(paths[path].method)]; !ok {
			t.Errorf("%s: strict takes %s, documented is %v", path, paths[path].method, methods)
		}
	}
}
