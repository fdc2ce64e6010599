package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// The methods that stream their answer are not served by the gateway, which cannot when it calls the server directly.
// They look as it would make them, and as the OpenAPI document says: a JSON object on each line, with the message as
// "result", or at last with why the stream ended as "error". What is refused before the first line is an error like
// every other.

// streamPaths are the paths of those methods.
func (s *Server) streamPaths() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/lock/watch": s.overseen(lockpb.Locks_Watch_FullMethodName, func(w http.ResponseWriter, r *http.Request) {
			in, out := new(lockpb.WatchRequest), newLines(w)
			if err := runtime.PopulateQueryParameters(in, r.URL.Query(), utilities.NewDoubleArray(nil)); err != nil {
				out.end(invalid("", "the query could not be read"))
				return
			}
			out.end(revoked(r.Context(), s.watchTo(r.Context(), in, func(m *lockpb.WatchResponse) error { return out.send(m) })))
		}),
		"/lock/follow": s.overseen(lockpb.Locks_Follow_FullMethodName, func(w http.ResponseWriter, r *http.Request) {
			in, out := new(lockpb.AcquireRequest), newLines(w)
			body, err := io.ReadAll(r.Body) // bounded by strict
			if err == nil && len(body) > 0 {
				err = protojson.Unmarshal(body, in)
			}
			if err != nil {
				out.end(invalid("", "the request could not be read"))
				return
			}
			out.end(revoked(r.Context(), s.followTo(r.Context(), in, func(m *lockpb.FollowResponse) error { return out.send(m) })))
		}),
	}
}

// overseen has the context of each request end when its caller's right to a method does.
func (s *Server) overseen(method string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, overlook := s.oversee(r.Context(), method)
		defer overlook()
		serve(w, r.WithContext(ctx))
	}
}

// streams serves the paths that stream, and leaves the rest to next.
func (s *Server) streams(next http.Handler) http.Handler {
	paths := s.streamPaths()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serve, ok := paths[r.URL.Path]; ok {
			serve(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// lines writes a stream of JSON objects, one a line, each of which is on its way before the next is made.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, control: http.NewResponseController(w)}
}

func (l *lines) send(m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	return l.write("result", text)
}

// end says why the stream is over. Before the first line that is an ordinary answer.
func (l *lines) end(err error) {
	if err == nil {
		return
	}
	var refused *refusal
	if !errors.As(err, &refused) {
		return // the client is gone
	}
	if !l.began {
		writeRefusal(l.w, refused)
		return
	}
	text, err := json.Marshal(bodyOf(refused))
	if err == nil {
		_ = l.write("error", text) // a client that is gone needs no answer
	}
}

// write sends a line. A client that does not take it in time is cut off, so that it keeps neither the connection nor
// the stream.
func (l *lines) write(name string, text []byte) error {
	if !l.began {
		l.began = true
		l.w.Header().Set("Content-Type", "application/json")
		l.w.Header().Set("X-Accel-Buffering", "no") // a proxy in between would hold single lines back
		l.w.WriteHeader(http.StatusOK)
	}
	_ = l.control.SetWriteDeadline(time.Now().Add(answerTimeout)) // unsupported only where there is no connection
	line := append([]byte(`{"`+name+`":`), text...)
	if _, err := l.w.Write(append(line, '}', '\n')); err != nil {
		return err
	}
	return l.control.Flush()
}
