package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/fencestore"
)

// foldAtOnce bounds the records that one transaction folds, and so how long it keeps their binds waiting.
const foldAtOnce = 1000

// Fold raises the folded floor of the cluster to below and removes the records that it makes needless: those under it
// whose resources nobody is bound to. From then on every token below it is refused, for every resource. So it has to be a
// committed value of the coordinators: the smallest token of a live lease, or the next token where there is none, the
// smallest over all groups. It returns how many records went; none when somebody else is folding.
func (s *Store) Fold(ctx context.Context, cluster string, below fencestore.Token) (folded int, err error) {
	for {
		var count *int
		err := s.ask(ctx, fencestore.Claim{Cluster: cluster, Token: below}, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select fence.fold($1, $2, $3)", cluster, int64(below), foldAtOnce).Scan(&count)
		})
		if err != nil || count == nil {
			return folded, err
		}
		folded += *count
		if *count < foldAtOnce {
			return folded, nil
		}
	}
}
