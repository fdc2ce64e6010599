package proxybench

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

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/sql/pgserver"
)

// Config says what to measure. The zero value of a field is its default.
type Config struct {
	Program   string // this program
	PgBouncer string // the peer's program
	Dir       string // where everything lies; empty: a temporary folder
	Only      []string
	Workloads []string // of Workloads
	Protocols []string // of Protocols
	Clients   []int    // 1 to MaxClients each; empty: 1, 8, 64
	Rounds    int      // 0: 3, and 1 with Quick
	Time      time.Duration
	Quick     bool // smaller and shorter
	Progress  io.Writer
}

// MaxClients is how many clients of pgbench there can be: each has a connection of the server.
const MaxClients = 200

// phase is one thing that is measured.
type phase struct {
	name  string
	about string
	run   func(*run, context.Context) error
}

// phases in their order.
var phases = []phase{
	{"load", "transactions per second, latency and processor time of a transaction, by pgbench", (*run).load},
	{"check", "a fenced update beside one whose floor the application checks by itself", (*run).check},
	{"connect", "connections per second, their processor time, and what binding one takes", (*run).connect},
	{"takeover", "successor's connect to its first accepted write, the old holder in an open transaction", (*run).takeover},
	{"idle", "resident memory of the process for each idle connection", (*run).idle},
}

// Phases are the names of the phases with what each measures.
func Phases() [][2]string {
	names := make([][2]string, len(phases))
	for i, p := range phases {
		names[i] = [2]string{p.name, p.about}
	}
	return names
}

// ErrViolated is in the error of a run in which an invariant did not hold.
var ErrViolated = errors.New("an invariant did not hold")

// check refuses what nobody knows.
func (c Config) check() error {
	var known []string
	for _, p := range phases {
		known = append(known, p.name)
	}
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"phase", c.Only, known}, {"workload", c.Workloads, Workloads()}, {"protocol", c.Protocols, Protocols()}} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				return fmt.Errorf("%w: there is no %s %q; known are %s", figures.ErrUsage, list.what, name, strings.Join(list.known, ", "))
			}
		}
	}
	return nil
}

// run is one run of the bench.
type run struct {
	config   Config
	size     size
	dir      string
	children *stage.Children
	report   figures.Report
	files    int

	bin      string // of PostgreSQL's programs
	postgres *pgserver.Server
	admin    *pgx.Conn // the superuser's
	keys     string    // the coordinator's HTTP address
	locks    *client.Client
	lease    *client.Lease // of benchResource
	targets  [targetCount]target
	lax      target // ours, for sessions without a ticket
	judge    judge
}

// benchResource is what all sessions of the load hold.
const benchResource = "bench"

// Run measures, and returns what was measured if everything went well and no invariant was broken. It starts and ends all
// processes by itself and removes what it wrote; after an error that is not the caller's the folder is kept, and named
// in it.
func Run(ctx context.Context, c Config) (*figures.Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	dir, err := stage.Folder(c.Dir)
	if err != nil {
		return nil, err
	}
	r := &run{config: c, size: sizeOf(c), dir: dir, children: new(stage.Children), report: figures.Report{Peer: "PgBouncer"}}
	err = os.Chmod(dir, 0o755) // PostgreSQL may run under an account of its own
	if err == nil {
		err = r.phases(ctx)
	}
	if stopErr := r.stop(); err == nil {
		err = stopErr
	}
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), os.RemoveAll(r.dir))
	case err != nil:
		return nil, fmt.Errorf("%w (kept: %s)", err, r.dir)
	}
	return &r.report, os.RemoveAll(r.dir)
}

// startTimeout bounds how long everything may take to start.
const startTimeout = 2 * time.Minute

func (r *run) phases(ctx context.Context) error {
	r.notes()
	if err := r.start(ctx); err != nil {
		return err
	}
	for _, p := range phases {
		if len(r.config.Only) > 0 && !slices.Contains(r.config.Only, p.name) {
			continue
		}
		r.progress("%s: %s", p.name, p.about)
		if err := p.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := r.judgeFloors(ctx); err != nil {
			return err
		}
	}
	return r.judgeEnd(ctx)
}

func (r *run) notes() {
	if stage.InMemory(r.dir) {
		r.remark("the folder lies in memory, so that no write waits for a disk: use --dir for figures that mean something")
	}
	if r.config.Quick {
		r.remark("one short round of each: ratios of processor times say something, rates and latencies little; memory of %d connections instead of %d", quickSize.idle, fullSize.idle)
	}
}

// start brings everything up that stands through the whole run.
func (r *run) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r.progress("start of PostgreSQL, a coordinator, the proxy and PgBouncer")
	if err := r.startPostgres(ctx); err != nil {
		return err
	}
	if err := r.startCoordinator(ctx); err != nil {
		return err
	}
	var err error
	if r.lease, err = r.locks.TryAcquire(ctx, benchResource); err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	if r.targets[ours], r.lax, err = r.startProxy(ctx); err != nil {
		return err
	}
	r.targets[ours].options = "-c fence.ticket=" + r.lease.Ticket()
	if r.targets[pgBouncer], err = r.startPgBouncer(ctx); err != nil {
		return err
	}
	r.targets[direct] = target{name: "direct", address: address(r.postgres.Host(), r.postgres.Port())}
	return nil
}

// stop ends all that was started.
func (r *run) stop() error {
	var errs []error
	if r.locks != nil {
		_ = r.locks.Close() // the leases end with their coordinator
	}
	r.children.Close()
	if r.admin != nil {
		_ = r.admin.Close(context.Background()) // it only looked
	}
	if r.postgres != nil {
		errs = append(errs, r.postgres.Stop())
	}
	return errors.Join(errs...)
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
	r.report.Notes = append(r.report.Notes, note)
}
