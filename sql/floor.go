package fencesql

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// LargestFloor is the largest token that the database has accepted for any resource, of whichever cluster; 0 if none. It
// does not need the fence to be ready. A database without the schema is an error.
func LargestFloor(ctx context.Context, conn *pgx.Conn) (largest uint64, err error) {
	err = conn.QueryRow(ctx, "select coalesce(pg_catalog.max(token), 0) from fence.floor").Scan(&largest)
	if err != nil {
		return 0, fmt.Errorf("read the largest floor: %w", err)
	}
	return largest, nil
}
