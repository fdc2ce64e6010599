package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	fencesql "github.com/lychgate/lychgate/sql"
)

func sqlAdoptCommand(db *sqlTarget) *cobra.Command {
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "adopt [CLUSTER]",
		Short: "Pin the database to where it is now, and to a cluster",
		Long: `Pin the database to where it is now, and to a cluster, after it was restored, copied or
promoted, or when another cluster takes over. Until then everything is answered LG007: a
restored database may have lost floors, and another cluster's tokens start anew. Every bound
session is ended first. Without CLUSTER the first one whose ticket comes is taken.`,
		Example: `  lychgate sql adopt --dsn postgres://postgres@db/app
  lychgate sql adopt lg-k4mkb2c4wmuydzjt`,
		Args: named("[CLUSTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster := ""
			if len(args) == 1 {
				cluster = args[0]
			}
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				ended, err := fencesql.Adopt(ctx, conn, cluster, timeout)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), adoptView{cluster, ended})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "adopted; bound sessions ended: %d\n", ended)
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "`duration` within which the bound sessions have to be gone")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// adoptView is what --json prints of an adoption.
type adoptView struct {
	Cluster string `json:"cluster"` // empty: that of the first ticket
	Ended   int    `json:"ended"`   // sessions that were bound
}
