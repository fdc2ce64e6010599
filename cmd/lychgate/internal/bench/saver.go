package bench

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// saveEvery is how long the saver waits between two snapshots.
const saveEvery = 10 * time.Second

// saver asks a cluster for snapshots, one after the other, beside those that nodes make for their logs.
type saver struct {
	done  int
	bytes int64
	err   error // the last that failed
}

// save saves until the returned function is called, which waits for the last.
func (s *saver) save(ctx context.Context, addr string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for stage.Pause(ctx, saveEvery) == nil {
			n, err := saveOnce(ctx, addr)
			switch {
			case err == nil:
				s.done++
				s.bytes += n
			case ctx.Err() == nil && status.Code(err) != codes.ResourceExhausted: // busy with one, and says so
				s.err = err
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// saveOnce reads a whole snapshot, and tells how long it is.
func saveOnce(ctx context.Context, addr string) (int64, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // nothing is left on it
	stream, err := lockpb.NewClusterClient(conn).Save(ctx, &lockpb.SaveRequest{})
	if err != nil {
		return 0, err
	}
	var n int64
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += int64(len(part.GetChunk()))
	}
}
