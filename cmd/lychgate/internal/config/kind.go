package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is a configuration that a file may be for.
type Kind struct {
	Name string
	Zero any // a struct with koanf tags
}

// Detect tells by its top-level keys which kind a file is for. A file that does not tell is an *Error that
// names the kinds.
func Detect(file string, kinds []Kind) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var top map[string]yaml.Node
	if err := yaml.Unmarshal(raw, &top); err != nil {
		return "", &Error{Where: file, Reason: err.Error()}
	}
	best, most, tie := "", 0, false
	var names []string
	for _, kind := range kinds {
		names = append(names, kind.Name)
		n := known(top, keysOf(reflect.TypeOf(kind.Zero)))
		switch {
		case n > most:
			best, most, tie = kind.Name, n, false
		case n == most:
			tie = true
		}
	}
	if best == "" || tie {
		return "", &Error{Where: file, Reason: fmt.Sprintf("does not tell what it is for; say --kind %s", strings.Join(names, " or --kind "))}
	}
	return best, nil
}

func known(top map[string]yaml.Node, keys []string) int {
	n := 0
	for key := range top {
		if slices.Contains(keys, key) {
			n++
		}
	}
	return n
}
