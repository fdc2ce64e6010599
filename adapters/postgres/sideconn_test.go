package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A side connection that is lost cannot come back while a stale holder fills every slot of the server; so no client
// may be able to use them up by leaving at the right moment.
func TestClientsThatLeaveCostNoSideConnection(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	side := func() (pids []int32) {
		rows, err := w.admin.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = 'lychgate-fence' AND datname = $1 ORDER BY 1", w.name)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var pid int32
			if err := rows.Scan(&pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return pids
	}
	await(t, "side connections", func() bool { return len(side()) == 3 })
	before := side()
	for i := range 60 {
		conn := p.connect(with(w.ticket("r", 1))).PgConn()
		f := conn.Frontend()
		switch i % 3 {
		case 0:
			f.SendQuery(&pgproto3.Query{String: "RESET fence.ticket"})
		case 1:
			f.SendQuery(&pgproto3.Query{String: "SET fence.ticket = '" + w.ticket("other", 1) + "'"})
		case 2:
			f.SendQuery(&pgproto3.Query{String: "BEGIN"})
			f.SendQuery(&pgproto3.Query{String: "SET LOCAL fence.ticket = '" + w.ticket("other", 1) + "'"})
			f.SendQuery(&pgproto3.Query{String: "COMMIT"})
		}
		if i%2 == 0 {
			f.Send(&pgproto3.Terminate{})
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		_ = conn.Conn().Close()
	}
	p.awaitBindings()
	if after := side(); !slices.Equal(before, after) {
		t.Errorf("side connections were %v, are %v", before, after)
	}
}
