package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// printMessage writes an answer of the API, as JSON with the names of the HTTP API or as text writes it.
func printMessage[M proto.Message](w io.Writer, asJSON bool, m M, text func(io.Writer, M) error) error {
	if !asJSON {
		return text(w, m)
	}
	raw, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return err
	}
	return printJSON(w, json.RawMessage(raw)) // protojson's own spacing is random on purpose
}

// granted is what AcquireResponse and RenewResponse have in common.
type granted interface {
	GetResource() string
	GetLeaseId() string
	GetFencingToken() uint64
	GetTtl() int32
	GetRemaining() int32
	GetTicket() string
}

func grantText[G granted](w io.Writer, g G) error {
	return printPairs(w,
		"resource", g.GetResource(),
		"lease", g.GetLeaseId(),
		"token", strconv.FormatUint(g.GetFencingToken(), 10),
		"ttl", millis(g.GetTtl()),
		"remaining", millis(g.GetRemaining()),
		"ticket", g.GetTicket())
}

func releaseText(resource string) func(io.Writer, *lockpb.ReleaseResponse) error {
	return func(w io.Writer, r *lockpb.ReleaseResponse) error {
		pairs := []string{"released", resource}
		if t := r.GetFencingToken(); t != 0 { // absent when an earlier attempt did it
			pairs = append(pairs, "token", strconv.FormatUint(t, 10))
		}
		return printPairs(w, pairs...)
	}
}

func breakText(resource string) func(io.Writer, *lockpb.BreakResponse) error {
	return func(w io.Writer, r *lockpb.BreakResponse) error {
		pairs := []string{"broken", resource, "token", strconv.FormatUint(r.GetFencingToken(), 10) + " (issued to nobody)"}
		for _, h := range r.GetEnded() {
			pairs = append(pairs, "ended", holderText(h))
		}
		if err := printPairs(w, pairs...); err != nil {
			return err
		}
		text := "the old holder can still write until a newer ticket reaches the store: lychgate run %s -- true\n"
		if len(r.GetEnded()) == 0 {
			text = "nobody held %s; a token was issued all the same\n"
		}
		_, err := fmt.Fprintf(w, text, resource)
		return err
	}
}

func lockText(w io.Writer, r *lockpb.GetResponse) error {
	lock := r.GetLock()
	pairs := []string{"resource", lock.GetResource()}
	switch closed := lock.GetClosedFor(); {
	case closed > 0: // to everybody, or after a shared lease to exclusive ones
		pairs = append(pairs, "state", "closed by its lock-delay for "+(time.Duration(closed)*time.Millisecond).String())
	case len(lock.GetHolders()) == 0:
		pairs = append(pairs, "state", "free")
	}
	for _, h := range lock.GetHolders() {
		pairs = append(pairs, "holder", holderText(h))
	}
	if more := int(lock.GetHolding()) - len(lock.GetHolders()); more > 0 {
		pairs = append(pairs, "holders", fmt.Sprintf("and %d more", more))
	}
	for i, waiter := range lock.GetWaiters() {
		pairs = append(pairs, "waiter "+strconv.Itoa(i+1), waiterText(waiter))
	}
	if more := int(lock.GetWaiting()) - len(lock.GetWaiters()); more > 0 {
		pairs = append(pairs, "waiters", fmt.Sprintf("and %d more", more))
	}
	return printPairs(w, pairs...)
}

func holderText(h *lockpb.Holder) string {
	return fmt.Sprintf("%s, token %d%s, for %s, %s left", h.GetClientId(), h.GetFencingToken(), modeText(h.GetMode()),
		millis(h.GetHeldFor()), millis(h.GetRemaining()))
}

// modeText tells of a shared lock; an exclusive one is the usual one.
func modeText(m lockpb.Mode) string {
	if m == lockpb.Mode_SHARED {
		return ", shared"
	}
	return ""
}

func waiterText(w *lockpb.Waiter) string {
	s := fmt.Sprintf("%s%s, %s left", w.GetClientId(), modeText(w.GetMode()), millis(w.GetRemaining()))
	if !w.GetAttached() {
		s += ", caller away"
	}
	return s
}

func listText(w io.Writer, r *lockpb.ListResponse) error {
	rows := make([][]string, 0, len(r.GetLocks()))
	for _, lock := range r.GetLocks() {
		row := []string{lock.GetResource(), "-", "-", "-", "-", strconv.Itoa(int(lock.GetWaiting()))}
		if holders := lock.GetHolders(); len(holders) > 0 {
			h := holders[0]
			row[1], row[2] = h.GetClientId(), strconv.FormatUint(h.GetFencingToken(), 10)
			switch more := len(holders) - 1; {
			case more > 0:
				row[1] += fmt.Sprintf(" and %d more (shared)", more)
			case h.GetMode() == lockpb.Mode_SHARED:
				row[1] += " (shared)"
			}
			row[3], row[4] = millis(h.GetHeldFor()), millis(h.GetRemaining())
		}
		rows = append(rows, row)
	}
	if err := printTable(w, []string{"RESOURCE", "HOLDER", "TOKEN", "HELD FOR", "LEFT", "WAITING"}, rows); err != nil {
		return err
	}
	if next := r.GetNext(); next != "" {
		fmt.Fprintf(w, "more: --after %s\n", next)
	}
	return nil
}

// compacted is JSON on one line: protojson's own spacing is random on purpose.
func compacted(text []byte) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return text
	}
	return out.Bytes()
}

// printPairs writes names and values in two columns.
func printPairs(w io.Writer, pairs ...string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(tw, "%s\t%s\n", pairs[i], pairs[i+1])
	}
	return tw.Flush()
}

func millis(ms int32) string { return (time.Duration(ms) * time.Millisecond).String() }
