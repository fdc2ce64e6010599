package stage

import (
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Lychgate runs this program, whatever its file is called, without the settings of the caller's environment: they are of
// another cluster.
func Lychgate(program string, args ...string) *exec.Cmd {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LYCHGATE_") })
	return &exec.Cmd{Path: program, Args: append([]string{"lychgate"}, args...), Env: env}
}
