package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/client"
)

// Config says what to measure. The zero value of a field is its default.
type Config struct {
	Program  string        // this program
	Etcd     string        // the peer's program, of .ci/etcd; empty: without
	Addrs    []string      // of a cluster that runs already; empty: clusters are started, and killed
	Client   client.Config // how such a cluster is reached, but for its addresses
	Flags    []string      // tell the workers the same
	Dir      string        // where the nodes' folders are; empty: a temporary folder
	Only     []string      // phases by name; empty: all that can be
	Workers  []int         // of the cycles; empty: 1, 64, 512, and 1, 16 on a cluster that runs already
	Rounds   int           // 0: 3, and 1 with Quick
	Quick    bool          // smaller and shorter
	Progress io.Writer

	// NoTickets has grants not signed, as for holders that show no ticket to anybody.
	NoTickets bool
}

// phase is one thing that is measured.
type phase struct {
	name  string
	about string
	run   func(*run, context.Context) error
	own   bool // it starts and kills clusters of its own kind, after those that both share are gone
	kills bool // it cannot be had of a cluster that runs already
}

// phases in their order: first those for which both sides' clusters stand side by side.
var phases = []phase{
	{"cycles", "lock and unlock cycles per second, own lock for each worker", (*run).cycles, false, false},
	{"contended", "cycles of many workers on few locks", (*run).contended, false, false},
	{"handover", "release to next grant, with many that wait for one lock", (*run).handover, false, false},
	{"failover", "SIGKILL of the leader to the next grant", (*run).failover, false, true},
	{"memory", "resident memory for each live lease", (*run).memory, true, true},
	{"expiry", "many leases that expire at once", (*run).expiry, true, true},
	{"capacity-a", "2,000 acquires, releases and renewals a second each, 20,000 leases, one replica down", (*run).capacityA, true, true},
	{"capacity-b", "70,000 lease operations a second, 100,000 clients with 5 leases of 10 s", (*run).capacityB, true, true},
	{"capacity-delay", "the same, 1 to 2 ms between the nodes", (*run).capacityDelay, true, true},
}

// Phases are the names of the phases with what each measures.
func Phases() [][2]string {
	names := make([][2]string, len(phases))
	for i, p := range phases {
		names[i] = [2]string{p.name, p.about}
	}
	return names
}

// chosen are the phases to run.
func (c Config) chosen() ([]phase, error) {
	for _, name := range c.Only {
		i := slices.IndexFunc(phases, func(p phase) bool { return p.name == name })
		if i < 0 {
			var known []string
			for _, p := range phases {
				known = append(known, p.name)
			}
			return nil, fmt.Errorf("%w: there is no phase %q; known are %s", figures.ErrUsage, name, strings.Join(known, ", "))
		}
		if phases[i].kills && len(c.Addrs) > 0 {
			return nil, fmt.Errorf("%w: %s kills or fills the nodes, which is not done to a cluster that runs already", figures.ErrUsage, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(phases), func(p phase) bool {
		return len(c.Only) > 0 && !slices.Contains(c.Only, p.name) || len(c.Only) == 0 && p.kills && len(c.Addrs) > 0
	}), nil
}

// run is one run of the bench.
type run struct {
	config   Config
	size     size
	dir      string
	children *stage.Children
	sides    []side // ours, then the peer's, while both stand
	report   figures.Report
	files    int
}

// Run measures, and returns what was measured if everything went well and no invariant was broken. It starts and ends all
// processes by itself and removes what it wrote; after an error that is not the caller's the folder is kept, and named
// in it.
func Run(ctx context.Context, c Config) (*figures.Report, error) {
	todo, err := c.chosen()
	if err != nil {
		return nil, err
	}
	r := &run{config: c, size: sizeOf(c), children: new(stage.Children), report: figures.Report{Peer: "etcd"}}
	if r.dir, err = stage.Folder(c.Dir); err != nil {
		return nil, err
	}
	err = r.phases(ctx, todo)
	r.dismiss()
	r.children.Close()
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), os.RemoveAll(r.dir))
	case err != nil:
		return nil, fmt.Errorf("%w (kept: %s)", err, r.dir)
	}
	return &r.report, os.RemoveAll(r.dir)
}

func (r *run) phases(ctx context.Context, todo []phase) error {
	r.disk()
	if r.config.Quick {
		r.remark("the sizes are far below those that the goals are for; memory and capacity say little")
	}
	if r.config.NoTickets {
		r.remark("grants are not signed")
	}
	for _, p := range todo {
		r.progress("%s: %s", p.name, p.about)
		if p.own {
			r.dismiss()
		} else if err := r.both(ctx); err != nil {
			return err
		}
		if err := p.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// disk notes a file system on which nothing is durable.
func (r *run) disk() {
	if len(r.config.Addrs) == 0 && stage.InMemory(r.dir) {
		r.remark("the folder lies in memory, so that no write waits for a disk: use --dir for figures that mean something")
	}
}

// both starts the clusters that stand side by side, unless they stand.
func (r *run) both(ctx context.Context) error {
	if r.sides != nil {
		return nil
	}
	if len(r.config.Addrs) > 0 {
		r.sides = []side{&existing{program: r.config.Program, flags: r.config.Flags, grpc: r.config.Addrs, client: r.config.Client}}
		return r.sides[0].awaitReady(ctx)
	}
	ours, err := startLychgate(r.children, r.config.Program, r.path("lychgate"), 0, 0)
	if err != nil {
		return err
	}
	r.sides = append(r.sides, ours)
	if r.config.Etcd != "" {
		theirs, err := startEtcd(r.children, r.config.Etcd, r.path("etcd"))
		if err != nil {
			return err
		}
		r.sides = append(r.sides, theirs)
	}
	for _, s := range r.sides {
		if err := s.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dismiss ends the clusters that stand side by side.
func (r *run) dismiss() {
	for _, s := range r.sides {
		s.stop()
	}
	r.sides = nil
}

// path is a new path in the run's folder.
func (r *run) path(name string) string {
	r.files++
	return filepath.Join(r.dir, fmt.Sprintf("%03d-%s", r.files, name))
}

func (r *run) progress(format string, args ...any) { stage.Tell(r.config.Progress, format, args...) }

// remark is a note that the report keeps.
func (r *run) remark(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	r.progress("note: %s", note)
	if !slices.Contains(r.report.Notes, note) {
		r.report.Notes = append(r.report.Notes, note)
	}
}

// work runs a crew to its own end and judges what it recorded.
func (r *run) work(ctx context.Context, s side, p load.Plan, timeout time.Duration) ([]load.Record, load.Summary, error) {
	p.Records = r.path("records")
	crew, err := r.hire(ctx, s, p, timeout)
	if err != nil {
		return nil, load.Summary{}, err
	}
	return r.harvest(ctx, crew, s, p, timeout)
}

// harvest waits for a crew and judges what it recorded.
func (r *run) harvest(ctx context.Context, c *crew, s side, p load.Plan, timeout time.Duration) ([]load.Record, load.Summary, error) {
	sum, err := c.finish(ctx, timeout)
	if err != nil {
		return nil, sum, fmt.Errorf("%s: %w", s.name(), err)
	}
	records, err := load.ReadRecords(p.Records)
	if err != nil {
		return nil, sum, err
	}
	if err := judge(records); err != nil {
		return nil, sum, fmt.Errorf("%s: %w", s.name(), err)
	}
	return records, sum, os.Remove(p.Records)
}
