package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func lockWatchCommand(to *target) *cobra.Command {
	var asJSON bool
	var revision, resync string
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Print what becomes of locks as it happens",
		Long: `Print a line for each lock that is granted, released, expired or broken, as it happens, of the
names that begin with PREFIX, or of all. Ctrl-C ends it. When a coordinator is lost, it goes
on at another one, and misses nothing.

A coordinator keeps what happened lately, and not for ever. If changes were missed, a line says
"resync", and the locks that are held then are listed as "held", so that what was missed can be
told from what is there now (--resync none leaves the list out).

With --json each line is a message of the API: its changes, and the revision to go on from, with
--revision, another time. A list ("lock list --json") has a revision too: what happened since.`,
		Example: `  lychgate lock watch ledger/
  lychgate lock watch --json --revision "$(lychgate lock list --json | jq -r .revision)"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("watch takes one PREFIX, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if resync != "list" && resync != "none" {
				return usageError("--resync %s: known are list and none", resync)
			}
			prefix := strings.Join(args, "")
			w := &watchPrinter{out: cmd.OutOrStdout(), asJSON: asJSON, prefix: prefix, list: resync == "list"}
			err := to.with(cmd.Context(), client.Config{}, func(ctx context.Context, c *client.Client) error {
				return w.run(ctx, c, revision)
			})
			if cmd.Context().Err() != nil && interruptedByUser(err) {
				return nil
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&revision, "revision", "", "go on after this `revision` of an earlier watch or list (default: from now on)")
	cmd.Flags().StringVar(&resync, "resync", "list", "what to print when changes were missed: `list` the locks that are held, or none")
	completes(cmd, "resync", "list", "none")
	return cmd
}

// interruptedByUser reports whether a command ended because of a signal, which is how a watch ends.
func interruptedByUser(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.Code > exitSignalled
}

// watchPrinter writes the messages of a watch.
type watchPrinter struct {
	out    io.Writer
	asJSON bool
	prefix string
	list   bool
}

// errRelist ends a watch so that another begins with a list.
var errRelist = errors.New("changes were missed")

// run watches until ctx ends. After a resync it goes on from a list, whose revision is right behind what it shows.
func (w *watchPrinter) run(ctx context.Context, c *client.Client, revision string) error {
	for {
		err := c.Watch(ctx, w.prefix, revision, w.message)
		if !errors.Is(err, errRelist) {
			return err
		}
		if revision, err = w.relist(ctx, c); err != nil {
			return err
		}
	}
}

func (w *watchPrinter) message(m *lockpb.WatchResponse) error {
	if w.asJSON {
		if err := w.line(m); err != nil {
			return err
		}
	} else {
		if m.GetResync() {
			fmt.Fprintln(w.out, "resync: changes were missed")
		}
		for _, change := range m.GetChanges() {
			if _, err := fmt.Fprintln(w.out, changeText(change)); err != nil {
				return err
			}
		}
	}
	if m.GetResync() && w.list {
		return errRelist
	}
	return nil
}

func (w *watchPrinter) line(m *lockpb.WatchResponse) error {
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w.out, "%s\n", compacted(text))
	return err
}

// relist prints the locks that are held, and returns the revision of the first page: what happens between two pages is
// told twice rather than not at all.
func (w *watchPrinter) relist(ctx context.Context, c *client.Client) (revision string, err error) {
	after := ""
	for {
		page, err := c.List(ctx, w.prefix, after, pageSize)
		if err != nil {
			return "", err
		}
		if revision == "" {
			revision = page.GetRevision()
		}
		if err := w.held(page); err != nil {
			return "", err
		}
		if after = page.GetNext(); after == "" {
			return revision, nil
		}
	}
}

func (w *watchPrinter) held(page *lockpb.ListResponse) error {
	if w.asJSON {
		text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(page)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w.out, "%s\n", compacted(text))
		return err
	}
	for _, lock := range page.GetLocks() {
		for _, h := range lock.GetHolders() {
			if _, err := fmt.Fprintf(w.out, "%-8s  %s  %s\n", "held", lock.GetResource(), holderText(h)); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeText is a change on one line.
func changeText(c *lockpb.Change) string {
	line := fmt.Sprintf("%-8s  %s  token %s", strings.ToLower(c.GetKind().String()), c.GetResource(), strconv.FormatUint(c.GetFencingToken(), 10))
	h := c.GetHolder()
	if h == nil {
		return line + " (nobody held it)"
	}
	if line += "  " + h.GetClientId(); h.GetMode() == lockpb.Mode_SHARED {
		line += " (shared)"
	}
	switch c.GetKind() {
	case lockpb.Change_GRANTED:
		return line // what remains of it is the time to claim it in, if the one who gets it waited for it
	case lockpb.Change_BROKEN:
		return line + " with token " + strconv.FormatUint(h.GetFencingToken(), 10) + ", after " + millis(h.GetHeldFor())
	case lockpb.Change_RELEASED, lockpb.Change_EXPIRED, lockpb.Change_KIND_UNSPECIFIED:
	}
	return line + ", after " + millis(h.GetHeldFor())
}

// isTerminal reports whether somebody looks at what is written there.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
