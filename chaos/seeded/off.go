//go:build !seededbugs

package seeded

// Is reports whether this bug is planted.
func Is(Bug) bool { return false }
