package main

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// errorView is an error as --json prints it, under the key "error", with the names of the HTTP API's errors. Only an error
// of a coordinator, or of the way to one, has more than a message and a code.
type errorView struct {
	Reason     string          `json:"reason,omitempty"`
	Applied    string          `json:"applied,omitempty"` // "no", "yes", "maybe"
	Message    string          `json:"message"`           // with the words of the command line
	Resource   string          `json:"resource,omitempty"`
	Field      string          `json:"field,omitempty"`
	Hint       string          `json:"hint,omitempty"`
	RetryAfter int64           `json:"retry_after,omitempty"` // milliseconds
	Holder     json.RawMessage `json:"holder,omitempty"`
	Cycle      []string        `json:"cycle,omitempty"`
	Position   int             `json:"position,omitempty"`
	ExitCode   int             `json:"exit_code"`
}

// printError writes an error as one line of JSON.
func printError(w io.Writer, err error, code int) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(map[string]errorView{"error": viewError(err, code)})
}

func viewError(err error, code int) errorView {
	view := errorView{Message: oneLine(err.Error()), ExitCode: code}
	if hinted, ok := errors.AsType[*hintedError](err); ok {
		view.Message, view.Hint = oneLine(hinted.err.Error()), hinted.hint
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return view
	}
	view.Applied = strings.ToLower(e.Applied.String())
	view.Resource, view.Field, view.RetryAfter = e.Resource, e.Field, e.RetryAfter.Milliseconds()
	view.Cycle, view.Position = e.Cycle, e.Position
	switch {
	case e.Reason != lockpb.Reason_REASON_UNSPECIFIED:
		view.Reason = strings.TrimPrefix(e.Reason.String(), "REASON_")
	case errors.Is(e, client.ErrUnreachable):
		view.Reason = "UNREACHABLE"
	}
	if e.Holder != nil {
		if raw, err := protojson.Marshal(e.Holder); err == nil {
			view.Holder = compacted(raw)
		}
	}
	return view
}

// wantsJSON reports whether a command was called with --json, even where its flags could not be read.
func wantsJSON(called *cobra.Command, args []string) bool {
	flag := called.Flags().Lookup("json")
	if flag == nil {
		return false
	}
	if dash := slices.Index(args, "--"); dash >= 0 {
		args = args[:dash]
	}
	return flag.Value.String() == "true" || slices.Contains(args, "--json")
}
