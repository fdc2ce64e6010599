package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// restPath is one path of the REST API.
type restPath struct {
	method  string
	request proto.Message // an empty one, for its fields
}

// restPaths is the REST API, as in lockpb/http.yaml. A test compares it with the OpenAPI document.
func restPaths() map[string]restPath {
	return map[string]restPath{
		"/lock/acquire":   {http.MethodPost, &lockpb.AcquireRequest{}},
		"/lock/renew":     {http.MethodPost, &lockpb.RenewRequest{}},
		"/lock/release":   {http.MethodPost, &lockpb.ReleaseRequest{}},
		"/lock/cancel":    {http.MethodPost, &lockpb.CancelRequest{}},
		"/lock/heartbeat": {http.MethodPost, &lockpb.HeartbeatRequest{}},
		"/lock/break":     {http.MethodPost, &lockpb.BreakRequest{}},
		"/lock/get":       {http.MethodGet, &lockpb.GetRequest{}},
		"/lock/list":      {http.MethodGet, &lockpb.ListRequest{}},
		"/lock/watch":     {http.MethodGet, &lockpb.WatchRequest{}},
		"/lock/follow":    {http.MethodPost, &lockpb.AcquireRequest{}},
		"/lock/hot":       {http.MethodGet, &lockpb.HotRequest{}},
		"/cluster/status": {http.MethodGet, &lockpb.StatusRequest{}},
		"/cluster/keys":   {http.MethodGet, &lockpb.KeysRequest{}},

		"/cluster/join":          {http.MethodPost, &lockpb.JoinRequest{}},
		"/cluster/remove":        {http.MethodPost, &lockpb.RemoveRequest{}},
		"/cluster/transfer":      {http.MethodPost, &lockpb.TransferRequest{}},
		"/cluster/keys/rotate":   {http.MethodPost, &lockpb.RotateRequest{}},
		"/cluster/policy":        {http.MethodPost, &lockpb.PutPolicyRequest{}},
		"/cluster/policy/delete": {http.MethodPost, &lockpb.DeletePolicyRequest{}},
		"/cluster/policies":      {http.MethodGet, &lockpb.PoliciesRequest{}},
	}
}

// strict lets only requests through to next that the gateway behind it understands whole: the gateway ignores query
// parameters that it does not know, and cannot say which field was wrong.
func strict(next http.Handler) http.Handler {
	paths := restPaths()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := paths[r.URL.Path]
		if !ok {
			writeStatus(w, http.StatusNotFound,
				invalid("", fmt.Sprintf("there is no %s", shortened(r.URL.Path))).advise("the paths are in /openapi.json"))
			return
		}
		if r.Method != path.method {
			w.Header().Set("Allow", path.method)
			writeStatus(w, http.StatusMethodNotAllowed,
				invalid("", fmt.Sprintf("%s takes %s", r.URL.Path, path.method)).advise("send it as "+path.method))
			return
		}
		if status, refused := readRequest(w, r, path.request); refused != nil {
			writeStatus(w, status, refused)
			return
		}
		r.Header.Set("Content-Type", "application/json") // whatever it said: it was read as that
		next.ServeHTTP(w, r)
	})
}

// readRequest reads what the request carries and leaves the body ready to be read again.
func readRequest(w http.ResponseWriter, r *http.Request, message proto.Message) (int, *refusal) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return http.StatusBadRequest, invalid("", "the query is not well formed")
	}
	if r.Method == http.MethodGet {
		return http.StatusBadRequest, checkQuery(query, message.ProtoReflect().Descriptor())
	}
	if len(query) > 0 {
		return http.StatusBadRequest, invalid(slices.Sorted(maps.Keys(query))[0], "the fields of a POST belong in its body, not in the query")
	}
	limit := maxSize(message)
	body, err := readBody(w, r, limit)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return http.StatusRequestEntityTooLarge, invalid("", fmt.Sprintf("the body is longer than %d bytes", limit))
	case err != nil:
		return http.StatusBadRequest, invalid("", "the body could not be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.StatusBadRequest, checkBody(body, message)
}

// readBody reads a body of bounded length.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		w.Header().Set("Connection", "close") // so that the server does not read the rest before it answers
		return nil, err
	}
	// The server goes on reading, to notice that a waiting caller has gone: that has no end.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // unsupported only where there is no connection
	return body, nil
}

// How long the body of a request may take to come, and an answer to be taken.
const (
	bodyTimeout   = 10 * time.Second
	answerTimeout = 30 * time.Second
)

// prompt bounds the time in which an announced body must come, for every path: before it answers, the server reads what
// a handler left of the body, so a body that never comes would keep the connection for ever. Only a body that was read
// to its end takes the bound away. It also bounds how long the caller may take the answer, counted from its beginning,
// so that one who does not read keeps neither the connection nor the answer.
func prompt(body, answer time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(body)) // as in readBody
		}
		next.ServeHTTP(&promptWriter{ResponseWriter: w, timeout: answer}, r)
	})
}

// promptWriter starts the time of an answer with its first byte: the call before it may have waited.
type promptWriter struct {
	http.ResponseWriter
	timeout time.Duration
	began   bool
}

func (w *promptWriter) begin() {
	if !w.began {
		w.began = true
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout)) // as in readBody
	}
}

func (w *promptWriter) WriteHeader(code int) {
	w.begin()
	w.ResponseWriter.WriteHeader(code)
}

func (w *promptWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *promptWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func checkBody(body []byte, message proto.Message) *refusal {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil // an empty message; its fields are checked later
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return invalid("", "the body, or an object in it, is not a JSON object")
	}
	fields := message.ProtoReflect().Descriptor().Fields()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field := fieldOf(fields, name)
		if field == nil {
			return unknownField(name, fields)
		}
		if field.Message() != nil && !field.IsList() {
			if refused := checkBody(members[name], message.ProtoReflect().NewField(field).Message().Interface()); refused != nil {
				return refused
			}
		}
		one, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err != nil || protojson.Unmarshal(one, proto.Clone(message)) != nil {
			return invalid(string(field.Name()), fmt.Sprintf("%s is not %s", field.Name(), kindName(field)))
		}
	}
	if err := protojson.Unmarshal(body, proto.Clone(message)); err != nil {
		return invalid("", "the body names a field twice") // each by itself is right
	}
	return nil
}

func checkQuery(query url.Values, message protoreflect.MessageDescriptor) *refusal {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		field := fieldOf(message.Fields(), name)
		if field == nil {
			return unknownField(name, message.Fields())
		}
		if len(query[name]) > 1 {
			return invalid(string(field.Name()), fmt.Sprintf("%s is given twice", field.Name()))
		}
		if !readable(field, query[name][0]) {
			return invalid(string(field.Name()), fmt.Sprintf("%s is not %s", field.Name(), kindName(field)))
		}
	}
	return nil
}

func fieldOf(fields protoreflect.FieldDescriptors, name string) protoreflect.FieldDescriptor {
	if field := fields.ByJSONName(name); field != nil {
		return field
	}
	return fields.ByTextName(name)
}

func unknownField(name string, fields protoreflect.FieldDescriptors) *refusal {
	known := make([]string, fields.Len())
	for i := range known {
		known[i] = string(fields.Get(i).Name())
	}
	name = shortened(name)
	message := fmt.Sprintf("unknown field %q; known are %s", name, strings.Join(known, ", "))
	if len(known) == 0 {
		message = fmt.Sprintf("unknown field %q; there are none here", name)
	}
	return invalid(name, message)
}

// shortened keeps what came from outside from filling an answer, and valid where it is JSON.
func shortened(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

func readable(field protoreflect.FieldDescriptor, text string) bool {
	var err error
	switch field.Kind() {
	case protoreflect.BoolKind:
		_, err = strconv.ParseBool(text)
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 10, 32)
	default: // names, which are checked later
	}
	return err == nil
}

func kindName(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind:
		if name := field.Name(); name == "ttl" || name == "wait_timeout" {
			return "a whole number of milliseconds, such as 30000"
		}
		return "a whole number between -2147483648 and 2147483647"
	case protoreflect.Int64Kind, protoreflect.Uint64Kind:
		return "a whole number of 64 bits"
	case protoreflect.EnumKind:
		return "one of its names: exclusive, shared"
	case protoreflect.MessageKind:
		return "an object of its fields"
	default:
		return "a string in UTF-8"
	}
}
