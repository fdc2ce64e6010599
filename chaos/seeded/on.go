//go:build seededbugs

package seeded

import "os"

var planted = Bug(os.Getenv("LYCHGATE_BUG"))

// Is reports whether this bug is planted.
func Is(b Bug) bool { return b == planted }
