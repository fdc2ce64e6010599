package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lychgate/lychgate/proxy/gate"
)

type fakeSource struct {
	problems []string
	degraded []string
	bindings []gate.BindingView
}

func (s *fakeSource) Problems() []string           { return s.problems }
func (s *fakeSource) Degraded() []string           { return s.degraded }
func (s *fakeSource) Bindings() []gate.BindingView { return s.bindings }

func get(t *testing.T, h http.Handler, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body), w.Header()
}

func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg).Announce(Listener{Adapter: "postgres", Name: "127.0.0.1:7632", Guarantee: "strict", Policy: gate.Require})
	_, body, _ := get(t, Handler(&fakeSource{}, reg), "/metrics")
	want := []string{
		`lychgate_bindings{adapter="postgres"} 0`,
		`lychgate_takeovers_total{adapter="postgres"} 0`,
		`lychgate_takeover_duration_seconds_count{adapter="postgres"} 0`,
		`lychgate_bind_duration_seconds_count{adapter="postgres"} 0`,
		`lychgate_takeover_ended_sessions_total{adapter="postgres"} 0`,
		`lychgate_store_ready{adapter="postgres",listener="127.0.0.1:7632"} 0`,
		`lychgate_listener_info{adapter="postgres",guarantee="strict",listener="127.0.0.1:7632",policy="require",unsigned="false"} 1`,
		"go_goroutines ", "process_open_fds ",
	}
	for _, reason := range gate.Reasons() {
		want = append(want, fmt.Sprintf(`lychgate_fencing_rejections_total{adapter="postgres",reason=%q} 0`, reason))
	}
	for _, line := range want {
		if !strings.Contains(body, line) {
			t.Errorf("no %s", line)
		}
	}
}

func TestObserverCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.Refused("postgres", gate.StaleToken)
	m.Refused("postgres", gate.StaleToken)
	m.Bound("postgres", 3)
	m.Bound("postgres", -1)
	m.BindTook("postgres", time.Millisecond)
	m.TookOver("postgres", 4*time.Millisecond, 2)
	m.StoreReady("postgres", "a", true)
	m.StoreReady("postgres", "b", true)
	m.StoreReady("postgres", "b", false)
	want := `
# HELP lychgate_bindings Live connections that are bound to a resource under a token.
# TYPE lychgate_bindings gauge
lychgate_bindings{adapter="postgres"} 2
# HELP lychgate_fencing_rejections_total Connections and statements refused by the fence.
# TYPE lychgate_fencing_rejections_total counter
lychgate_fencing_rejections_total{adapter="postgres",reason="stale_token"} 2
# HELP lychgate_store_ready 1 while the listener's store can decide, else 0.
# TYPE lychgate_store_ready gauge
lychgate_store_ready{adapter="postgres",listener="a"} 1
lychgate_store_ready{adapter="postgres",listener="b"} 0
# HELP lychgate_takeover_ended_sessions_total Sessions of older tokens that takeovers ended.
# TYPE lychgate_takeover_ended_sessions_total counter
lychgate_takeover_ended_sessions_total{adapter="postgres"} 2
# HELP lychgate_takeovers_total Floors raised: a larger token was seen for the first time.
# TYPE lychgate_takeovers_total counter
lychgate_takeovers_total{adapter="postgres"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "lychgate_bindings", "lychgate_fencing_rejections_total",
		"lychgate_store_ready", "lychgate_takeover_ended_sessions_total", "lychgate_takeovers_total"); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	s := &fakeSource{problems: []string{"draining", "postgres[0]: store not ready: refused"}}
	h := Handler(s, prometheus.NewRegistry())
	if code, body, _ := get(t, h, "/livez"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("livez: %d %q", code, body)
	}
	if code, body, _ := get(t, h, "/readyz"); code != http.StatusServiceUnavailable || body != strings.Join(s.problems, "\n")+"\n" {
		t.Errorf("readyz with problems: %d %q", code, body)
	}
	s.problems = nil
	if code, body, _ := get(t, h, "/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	s.degraded = []string{"no watch"}
	if code, body, _ := get(t, h, "/readyz"); code != http.StatusOK || body != "ok\nno watch\n" {
		t.Errorf("readyz while degraded: %d %q", code, body)
	}
	if code, _, _ := get(t, h, "/nothing"); code != http.StatusNotFound {
		t.Errorf("unknown path: %d", code)
	}
}

func TestBindings(t *testing.T) {
	s := &fakeSource{}
	for i := range bindingLimit + 5 {
		s.bindings = append(s.bindings, gate.BindingView{
			Listener: "l", Adapter: "postgres", Remote: "127.0.0.1:9", Cluster: "c", Resource: fmt.Sprintf("r/%d", i),
			Token: 1<<53 - 1, Mode: "shared", LeaseHash: "h", Session: "42", Since: time.Unix(1, 0).UTC(),
		})
	}
	h := Handler(s, prometheus.NewRegistry())
	code, body, header := get(t, h, "/bindings?resource=r/7")
	want := `{"bindings":[{"id":"0","listener":"l","adapter":"postgres","remote":"127.0.0.1:9","cluster":"c","resource":"r/7",` +
		`"token":"9007199254740991","mode":"shared","leaseHash":"h","session":"42","since":"1970-01-01T00:00:01Z"}],"total":1}` + "\n"
	if code != http.StatusOK || body != want || header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %v\n%s\nwant\n%s", code, header, body, want)
	}
	for path, n := range map[string]int{"/bindings": bindingLimit, "/bindings?limit=3": 3, "/bindings?resource=none": 0} {
		var list bindingList
		_, body, _ := get(t, h, path)
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Bindings) != n {
			t.Errorf("%s: %d bindings, %v; want %d", path, len(list.Bindings), err, n)
		}
	}
	if _, body, _ := get(t, h, "/bindings?resource=none"); !strings.Contains(body, `"bindings":[]`) {
		t.Errorf("none: %s", body)
	}
	for _, limit := range []string{"0", "-1", "x", "1001"} {
		if code, _, _ := get(t, h, "/bindings?limit="+limit); code != http.StatusBadRequest {
			t.Errorf("limit %s: %d", limit, code)
		}
	}
}
