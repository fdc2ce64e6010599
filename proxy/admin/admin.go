package admin

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Source is what the admin side asks the proxy for. Both must answer from memory, without blocking.
type Source interface {
	// Problems lists why the proxy should get no new connections now, one complete sentence each; empty: ready.
	Problems() []string
	// Degraded lists what does not work although the proxy is ready, as Problems does.
	Degraded() []string
	// Bindings lists the live bindings of all listeners.
	Bindings() []gate.BindingView
}

// Handler serves /metrics, /livez, /readyz and /bindings. It blocks on nothing but the client.
func Handler(source Source, gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, source.Problems(), source.Degraded()) })
	mux.HandleFunc("GET /bindings", func(w http.ResponseWriter, r *http.Request) { serveBindings(w, r, source.Bindings()) })
	return mux
}

func ready(w http.ResponseWriter, problems, degraded []string) {
	if len(problems) == 0 {
		plain(w, http.StatusOK, strings.Join(append([]string{"ok"}, degraded...), "\n"))
		return
	}
	plain(w, http.StatusServiceUnavailable, strings.Join(problems, "\n"))
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // only the client's connection can fail
}
