package proxybench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

// together is the time in which all clients worked: from the moment when each has ended its first transaction, to the first
// one's last end. What clients do to connect, and what the slowest does alone, lies outside; false if there is no such time.
func together(all []transaction, clients int) (from, to int64, ok bool) {
	first, last := make(map[int]int64, clients), make(map[int]int64, clients)
	for _, tx := range all {
		if t, seen := first[tx.client]; !seen || tx.ended < t {
			first[tx.client] = tx.ended
		}
		last[tx.client] = max(last[tx.client], tx.ended)
	}
	if len(first) < clients {
		return 0, 0, false
	}
	for client, t := range first {
		from = max(from, t)
		if to == 0 || last[client] < to {
			to = last[client]
		}
	}
	return from, to, from < to
}
