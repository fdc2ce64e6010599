package group

import "github.com/lychgate/lychgate/coordinator/internal/lock"

// Look reads what would be restored, whole, and changes nothing.
func (r Restoration) Look() (lock.Info, error) {
	from, err := r.read()
	if err != nil {
		return lock.Info{}, err
	}
	return from.machine.Info(), nil
}

// ChooseIncarnation is the incarnation of a restored cluster: the one that was asked for, if it is above everything known,
// or with 0 one that is, by a random step.
func ChooseIncarnation(asked uint32, known ...uint32) (uint32, error) {
	if asked == 0 {
		return NextIncarnation(known...)
	}
	return asked, checkIncarnation(asked, known...)
}
