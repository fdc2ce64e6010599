package api

// callList is a list of calls, of which each is in one list at most. Every call is put in and taken out, which a map would make
// dear.
type callList struct{ first *sessionCall }

func (l *callList) add(c *sessionCall) {
	c.listed, c.before, c.after = true, nil, l.first
	if l.first != nil {
		l.first.before = c
	}
	l.first = c
}

// remove reports whether the call was in the list.
func (l *callList) remove(c *sessionCall) bool {
	if !c.listed {
		return false
	}
	if c.before != nil {
		c.before.after = c.after
	} else {
		l.first = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	}
	c.listed, c.before, c.after = false, nil, nil
	return true
}
