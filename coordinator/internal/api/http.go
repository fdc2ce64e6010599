package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// Handler serves everything of the HTTP port: REST, the OpenAPI document, ticket keys, health and metrics.
func (s *Server) Handler(metrics prometheus.Gatherer) (http.Handler, error) {
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &lined{runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true},
		}}),
		runtime.WithErrorHandler(writeError),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		// No header becomes metadata: the mark of a forwarded call must not come from outside.
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	ctx := context.Background() // ends nothing: the way inside needs no end
	if err := lockpb.RegisterLocksHandlerClient(ctx, gateway, lockpb.NewLocksClient(inside{s})); err != nil {
		return nil, err
	}
	if err := lockpb.RegisterClusterHandlerClient(ctx, gateway, lockpb.NewClusterClient(inside{s})); err != nil {
		return nil, err
	}
	// A page in somebody's browser must not reach the coordinator of the machine it is open on.
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeRefusal(w, refuse(lockpb.Reason_PERMISSION_DENIED, "the request comes from a page of another origin"))
	}))
	api := origins.Handler(strict(s.streams(gateway)))

	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	mux.HandleFunc("GET "+ticket.Path, s.serveKeys)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return prompt(bodyTimeout, answerTimeout, s.identified(mux)), nil
}

// lined ends every answer with a line feed, as terminals like it.
type lined struct{ runtime.JSONPb }

// Marshal is that of JSONPb but for the line feed.
func (l *lined) Marshal(v any) ([]byte, error) {
	text, err := l.JSONPb.Marshal(v)
	return append(text, '\n'), err
}

// NewHTTPServer is an HTTP server with bounds that suit the API: headers are short, and answers may wait.
func NewHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second, // that of the body is in prompt: a ReadTimeout would cut waiting calls
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       rememberShown,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // a client that is gone needs no answer
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(lockpb.OpenAPI())
}

func (s *Server) serveKeys(w http.ResponseWriter, r *http.Request) {
	set, refused := s.keySet(r.Context(), &lockpb.KeysRequest{})
	if refused != nil {
		writeRefusal(w, refused)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "no-cache") // a new node's key must be seen at once
	_, _ = w.Write([]byte(set.GetJwks()))
}

// RefuseNoLeader answers an HTTP request that nobody can serve yet, and says why.
func RefuseNoLeader(w http.ResponseWriter, reason string) {
	writeRefusal(w, refuse(lockpb.Reason_NO_LEADER, reason))
}

func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := s.Ready(); err != nil {
		writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	}
	writeText(w, http.StatusOK, "ready\n")
}

// errorBody is the body of every HTTP error.
type errorBody struct {
	Reason     string          `json:"reason"`
	Applied    string          `json:"applied"` // "no", "yes", "maybe"
	Message    string          `json:"message"`
	Field      string          `json:"field,omitempty"`
	Hint       string          `json:"hint,omitempty"`
	RetryAfter int32           `json:"retry_after,omitempty"` // milliseconds
	Holder     json.RawMessage `json:"holder,omitempty"`
	Cycle      []string        `json:"cycle,omitempty"`
	Position   int32           `json:"position,omitempty"`
}

// writeError is the gateway's error handler.
func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	var refused *refusal
	if !errors.As(err, &refused) {
		// The gateway's own: what strict let through and it could not read after all, or a caller that is gone.
		refused = refuse(lockpb.Reason_INTERNAL, err.Error())
		if status.Code(err) == codes.InvalidArgument {
			refused = invalid("", "the request could not be read")
		}
	}
	writeRefusal(w, refused)
}

func writeRefusal(w http.ResponseWriter, r *refusal) { writeStatus(w, outwardOf(r.reason()).http, r) }

func bodyOf(r *refusal) errorBody {
	body := errorBody{
		Reason: reasonName(r.reason()), Applied: appliedName(r.detail.GetApplied()), Message: r.message,
		Field: r.detail.GetField(), Hint: r.detail.GetHint(), RetryAfter: r.detail.GetRetryAfter(),
		Cycle: r.detail.GetCycle(), Position: r.detail.GetPosition(),
	}
	if h := r.detail.GetHolder(); h != nil {
		body.Holder, _ = protojson.Marshal(h) // names and numbers: always valid
	}
	return body
}

func writeStatus(w http.ResponseWriter, code int, r *refusal) {
	body := bodyOf(r)
	if body.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((body.RetryAfter+999)/1000)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone needs no answer
}

func appliedName(a lockpb.Applied) string {
	switch a {
	case lockpb.Applied_NO:
		return "no"
	case lockpb.Applied_YES:
		return "yes"
	case lockpb.Applied_MAYBE, lockpb.Applied_APPLIED_UNSPECIFIED:
	}
	return "maybe"
}
