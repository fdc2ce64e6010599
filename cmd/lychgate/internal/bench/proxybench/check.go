package proxybench

import (
	"context"
	"os"
	"strconv"
)

// What is written by both: one row of many, at random.
const chooseRow = "\\set aid random(1, 100000)\n\\set delta random(-5000, 5000)\n"

const updateRow = "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n"

// checkedUpdate is what an application has to do that fences by itself: it holds the floor's row while it writes, so that
// no successor can raise it in between.
const checkedUpdate = chooseRow + "BEGIN;\n" +
	"SELECT token <= :token AS mine FROM checked_floor WHERE resource = 'bench' FOR SHARE \\gset\n" +
	"\\if :mine\n" + updateRow + "\\endif\nCOMMIT;\n"

// check measures one fenced update through the proxy beside the update of an application that checks the floor by itself,
// through PgBouncer.
func (r *run) check(ctx context.Context) error {
	token := strconv.FormatUint(uint64(r.lease.Token()), 10)
	if err := r.exec(ctx, "INSERT INTO checked_floor VALUES ('"+benchResource+"', "+token+")"); err != nil {
		return err
	}
	fenced, checked := r.path("fenced.sql"), r.path("checked.sql")
	for name, text := range map[string]string{fenced: chooseRow + updateRow, checked: checkedUpdate} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	r.remark("fenced_update: an UPDATE through the proxy; the peer is BEGIN, a check of the floor's row FOR SHARE, UPDATE, COMMIT through PgBouncer")
	for _, clients := range r.size.checking {
		if err := r.checkOf(ctx, clients, fenced, checked, token); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) checkOf(ctx context.Context, clients int, fenced, checked, token string) error {
	var got [targetCount]series
	for round := range r.size.rounds {
		for _, i := range turns(round) {
			script := map[int]string{ours: fenced, pgBouncer: checked}[i]
			if script == "" {
				continue
			}
			o, err := r.pgbench(ctx, r.targets[i], job{clients: clients, time: r.size.time, args: []string{"-M", "prepared", "-D", "token=" + token, "-f", script}})
			if err != nil {
				return err
			}
			got[i].add(o)
		}
		r.progress("  %d clients, round %d of %d: fenced %.0f/s, checked by the application %.0f/s", clients, round+1, r.size.rounds,
			got[ours].last(perSecond), got[pgBouncer].last(perSecond))
	}
	name := "fenced_update_c" + strconv.Itoa(clients)
	r.compare("proxy_cpu_us_per_tx_"+name, "us", got, cpuMicros)
	r.compare("tps_"+name, "1/s", got, perSecond)
	r.compare("p50_ms_"+name, "ms", got, p50MS)
	r.compare("p99_ms_"+name, "ms", got, p99MS)
	return nil
}
