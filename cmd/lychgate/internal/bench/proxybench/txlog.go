package proxybench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// transaction is a line of pgbench's log.
type transaction struct {
	client int
	took   time.Duration
	ended  int64 // microseconds since 1970
}

// errFailed is of a transaction that pgbench logs without a latency.
var errFailed = errors.New("a transaction failed")

// readLog reads what "pgbench --log" writes: client, number, latency in microseconds, script, seconds and microseconds of
// the end.
func readLog(r io.Reader) ([]transaction, error) {
	var all []transaction
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		tx, err := parseTransaction(lines.Text())
		if err != nil {
			return nil, err
		}
		all = append(all, tx)
	}
	return all, lines.Err()
}

func parseTransaction(line string) (transaction, error) {
	f := strings.Fields(line)
	if len(f) < 6 {
		return transaction{}, fmt.Errorf("pgbench's log has the line %q", line)
	}
	if f[2] == "failed" || f[2] == "skipped" {
		return transaction{}, fmt.Errorf("%w: pgbench's log has the line %q", errFailed, line)
	}
	client, err1 := strconv.Atoi(f[0])
	took, err2 := strconv.ParseInt(f[2], 10, 64)
	seconds, err3 := strconv.ParseInt(f[4], 10, 64)
	micros, err4 := strconv.ParseInt(f[5], 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return transaction{}, fmt.Errorf("pgbench's log has the line %q: %w", line, err)
	}
	return transaction{client: client, took: time.Duration(took) * time.Microsecond, ended: seconds*1e6 + micros}, nil
}

// stragglers is the share of the clients that need not be at work.
const stragglers = 0.1

// together is the time in which the clients worked together, but for a few stragglers: from the end of nearly everybody's
// first transaction, to the end of the first few's last. What clients do to connect and to leave lies outside; false if
// there is no such time.
func together(all []transaction, clients int) (from, to int64, ok bool) {
	first, last := make(map[int]int64, clients), make(map[int]int64, clients)
	for _, tx := range all {
		if t, seen := first[tx.client]; !seen || tx.ended < t {
			first[tx.client] = tx.ended
		}
		last[tx.client] = max(last[tx.client], tx.ended)
	}
	few := int(stragglers * float64(clients))
	if len(first) < clients-few {
		return 0, 0, false
	}
	from = slices.Sorted(maps.Values(first))[clients-few-1]
	to = slices.Sorted(maps.Values(last))[min(few, len(last)-1)]
	return from, to, from < to
}
