package wire

import (
	"strings"
)

// SplitOptions splits the start-up parameter "options" as the server does: at white space, where a backslash takes
// the next character as it is.
func SplitOptions(s string) []string {
	var (
		args   []string
		arg    strings.Builder
		inside bool
	)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case isSpace(c):
			if inside {
				args = append(args, arg.String())
				arg.Reset()
			}
			inside = false
		case c == '\\' && i+1 < len(s):
			i++
			arg.WriteByte(s[i])
			inside = true
		default:
			arg.WriteByte(c)
			inside = true
		}
	}
	if inside {
		args = append(args, arg.String())
	}
	return args
}

// JoinOptions is the inverse of SplitOptions.
func JoinOptions(args []string) string {
	var s strings.Builder
	for i, arg := range args {
		if i > 0 {
			s.WriteByte(' ')
		}
		for j := range len(arg) {
			if isSpace(arg[j]) || arg[j] == '\\' {
				s.WriteByte('\\')
			}
			s.WriteByte(arg[j])
		}
	}
	return s.String()
}

// TakeOption removes a setting, in whatever case of its name, from options given as "-c name=value", "-cname=value"
// or "--name=value", and returns its values. Text without the setting is returned unchanged.
func TakeOption(options, name string) (rest string, values []string) {
	args := SplitOptions(options)
	var kept []string
	for i := 0; i < len(args); i++ {
		setting, width := settingAt(args[i:])
		if n, v, ok := strings.Cut(setting, "="); ok && strings.EqualFold(n, name) {
			values = append(values, v)
		} else {
			kept = append(kept, args[i:i+width]...)
		}
		i += width - 1
	}
	if len(values) == 0 {
		return options, nil
	}
	return JoinOptions(kept), values
}

// settingAt returns the "name=value" that args begin with and how many arguments it takes.
func settingAt(args []string) (setting string, width int) {
	switch arg := args[0]; {
	case arg == "-c" && len(args) > 1:
		return args[1], 2
	case strings.HasPrefix(arg, "-c"), strings.HasPrefix(arg, "--"):
		return arg[2:], 1
	}
	return "", 1
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
