package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// acceptEach hands connections over until ctx is done, which is no error, or the listener is closed. Errors that
// pass, such as no more file descriptors, slow it down.
func acceptEach(ctx context.Context, l net.Listener, log *slog.Logger, each func(net.Conn)) error {
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("postgres: accept: %w", err)
		case err != nil:
			log.Warn("accept", "cause", err.Error())
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		each(conn)
	}
}
