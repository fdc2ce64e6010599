package group

import (
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// drawn is how many incarnations beyond the next one are drawn from. Two restores of one backup take different ones, but for
// one time in drawn.
const drawn = 256

// NextIncarnation chooses the incarnation of a restored cluster: above everything known, by a random step. The last life of
// the cluster may have been restored before from the same backup, and nobody may know.
func NextIncarnation(known ...uint32) (uint32, error) {
	var b [1]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw an incarnation: %w", err)
	}
	return nextIncarnation(uint32(b[0]), known...)
}

func nextIncarnation(draw uint32, known ...uint32) (uint32, error) {
	highest := slices.Max(append(known, 0))
	if highest >= lease.MaxIncarnation {
		return 0, fmt.Errorf("the cluster has had incarnation %d, and there is none above %d: tokens can grow no more. Its stores have to "+
			"be given to a new cluster (lychgate sql adopt)", highest, lease.MaxIncarnation)
	}
	room := min(lease.MaxIncarnation-highest, drawn)
	return highest + 1 + draw%room, nil
}

// checkIncarnation refuses one that was chosen by hand and is not above everything known.
func checkIncarnation(chosen uint32, known ...uint32) error {
	highest := slices.Max(append(known, 0))
	switch {
	case chosen <= highest:
		return fmt.Errorf("incarnation %d is not above %d, which the cluster has had: tokens could be issued twice", chosen, highest)
	case chosen > lease.MaxIncarnation:
		return fmt.Errorf("incarnation %d is above %d, the highest that there is", chosen, lease.MaxIncarnation)
	}
	return nil
}
