package group

import (
	"fmt"
	"io"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// WriteSave writes a save as Save does, of a state that was frozen before.
func WriteSave(w io.Writer, saved Saved, state *lock.Snapshot) error {
	if err := writeSaved(w, saved); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if err := logpb.WriteSnapshot(w, state); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}
