package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	fencesql "github.com/lychgate/lychgate/sql"
)

func sqlProtectCommand(db *sqlTarget) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "protect TABLE EXPRESSION",
		Short: "Let only sessions that hold a row's resource change the row",
		Long: `Guard a table and its partitions: a statement may change a row only in a session that holds
the resource that the SQL expression names for it, before the change and after. That covers
what a proxy cannot see, such as direct logins. Not covered: the table's owner, who can take
the guard off, superusers, large objects, sequences.

MERGE into a partitioned table is refused: PostgreSQL does not show the guard the rows that it
moves to another partition.

Protecting a protected table replaces its expression and takes in new partitions.`,
		Example: `  lychgate sql protect ledger "'ledger/' || region"
  lychgate sql protect public.account "'account/' || id"`,
		Args: named("TABLE", "EXPRESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				n, err := fencesql.Protect(ctx, conn, args[0], args[1])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), guardView{args[0], args[1], n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "protected %s by %s (%s)\n", args[0], args[1], tables(n))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func sqlUnprotectCommand(db *sqlTarget) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "unprotect TABLE",
		Short:   "Take the guard off a table and its partitions",
		Example: "  lychgate sql unprotect ledger",
		Args:    named("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				n, err := fencesql.Unprotect(ctx, conn, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), guardView{args[0], "", n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "unprotected %s (%s)\n", args[0], tables(n))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// guardView is what --json prints of a guard that was put on or taken off.
type guardView struct {
	Table    string `json:"table"` // as it was named
	Resource string `json:"resource,omitempty"`
	Tables   int    `json:"tables"` // that now have it, or had it: the table and its partitions
}

func tables(n int) string {
	if n == 1 {
		return "1 table"
	}
	return fmt.Sprintf("%d tables", n)
}
