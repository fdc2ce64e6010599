package fencesql

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// LargestFloor is the largest token that the database has accepted for any resource, or has been told that it is not to
// accept any below, of whichever cluster; 0 if none. It does not need the fence to be ready. A database without the schema
// is an error.
func LargestFloor(ctx context.Context, conn *pgx.Conn) (largest uint64, err error) {
	floors := "select token from fence.floor"
	var folds bool // before version 8 there is no such table
	err = conn.QueryRow(ctx, "select pg_catalog.to_regclass('fence.folded') is not null").Scan(&folds)
	if folds {
		floors += " union all select token from fence.folded"
	}
	if err == nil {
		err = conn.QueryRow(ctx, "select coalesce(pg_catalog.max(token), 0) from ("+floors+") f").Scan(&largest)
	}
	if err != nil {
		return 0, fmt.Errorf("read the largest floor: %w", err)
	}
	return largest, nil
}
