// Package config reads the configuration of a server: a YAML file, then the environment, then the command
// line, each over the one before. What may stand in it is said by the koanf tags of the struct that it fills;
// anything else is an error that says where it stands and what was probably meant.
//
// The environment's rule: LYCHGATE_ and the key in capitals, levels separated by two underscores, elements of
// a list by their number. LYCHGATE_POSTGRES__0__STORE is postgres[0].store; a list of plain values may also be
// given whole, separated by commas.
package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Source is where the values come from. Any part may be empty.
type Source struct {
	File    string            // path of a YAML file; empty: none
	Environ []string          // as os.Environ gives it; only names that begin with EnvPrefix matter
	Flags   map[string]string // path of a key ("listen.grpc", "postgres[0].listen") to value
	FlagOf  map[string]string // path of a key to the flag it came from, for messages; may be nil
}

// Error says what is wrong with which key, and where it stands.
type Error struct {
	Where  string // "proxy.yaml:7", an environment variable, a flag
	Key    string // path of the key; empty: the whole
	Reason string
}

func (e *Error) Error() string {
	if e.Key == "" {
		return e.Where + ": " + e.Reason
	}
	return fmt.Sprintf("%s: %s: %s", e.Where, e.Key, e.Reason)
}

// Load fills into, a pointer to a struct with koanf tags that holds the defaults. It reads the file and
// nothing else. What is wrong is an *Error each, all of them joined; into is then undefined.
func Load(into any, src Source) error {
	shape := reflect.TypeOf(into).Elem()
	k := koanf.New(".")
	var inFile error
	if src.File != "" {
		inFile = loadFile(k, shape, src.File)
	}
	values, inEnviron := fromEnviron(shape, src.Environ)
	flags, inFlags := fromFlags(shape, src)
	if err := errors.Join(inFile, inEnviron, inFlags); err != nil {
		return err
	}
	for _, v := range append(values, flags...) {
		if err := set(k, v); err != nil {
			return err
		}
	}
	return unmarshal(k, into, src.File)
}

func loadFile(k *koanf.Koanf, shape reflect.Type, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err // names the file and what failed
	}
	if err := checkYAML(path, raw, shape); err != nil {
		return err
	}
	if err := k.Load(rawbytes.Provider(raw), yaml.Parser()); err != nil {
		return &Error{Where: path, Reason: err.Error()}
	}
	return nil
}

// A value is one key that comes as text, from outside of a file.
type value struct {
	where string
	path  path
	typed any // of the key's own kind
}

func fromFlags(shape reflect.Type, src Source) ([]value, error) {
	var out []value
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(src.Flags)) {
		where := "flag"
		if name := src.FlagOf[key]; name != "" {
			where = "--" + name
		}
		p, err := parsePath(key)
		if err != nil {
			faults = append(faults, &Error{where, key, err.Error()})
			continue
		}
		v, err := typedValue(shape, where, p, src.Flags[key])
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(faults...)
}

func typedValue(shape reflect.Type, where string, p path, text string) (value, error) {
	t, err := p.resolve(shape)
	if err != nil {
		return value{}, &Error{where, p.String(), err.Error()}
	}
	typed, err := parseText(t, text)
	if err != nil {
		return value{}, &Error{where, p.String(), err.Error()}
	}
	return value{where, p, typed}, nil
}

// set lays one value over what k holds. koanf replaces lists whole, so an element is changed in a copy of
// its list.
func set(k *koanf.Koanf, v value) error {
	root := k.Raw()
	changed, err := v.path.put(root, v.typed)
	if err != nil {
		return &Error{v.where, v.path.String(), err.Error()}
	}
	top := v.path[0].key
	return k.Load(confmap.Provider(map[string]any{top: changed.(map[string]any)[top]}, ""), nil)
}

func unmarshal(k *koanf.Koanf, into any, file string) error {
	if file == "" {
		file = "configuration"
	}
	err := k.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:           into,
		TagName:          "koanf",
		ErrorUnused:      true,
		WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.TextUnmarshallerHookFunc(),
		),
	}})
	if err != nil {
		return &Error{Where: file, Reason: err.Error()}
	}
	return nil
}

// path is a key and the levels above it.
type path []step

// step is one level: a key, or the number of an element when key is empty.
type step struct {
	key   string
	index int
}

func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.key == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case i > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

func (p path) with(s step) path { return append(slices.Clone(p), s) }

// parsePath reads "listen.grpc", "postgres[0].store" or "postgres.0.store".
func parsePath(s string) (path, error) {
	s = strings.NewReplacer("[", ".", "]", "").Replace(s)
	var p path
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return nil, fmt.Errorf("not a key")
		}
		p = append(p, stepOf(part))
	}
	if p[0].key == "" {
		return nil, fmt.Errorf("not a key")
	}
	return p, nil
}

func stepOf(part string) step {
	if n, err := strconv.Atoi(part); err == nil && n >= 0 {
		return step{index: n}
	}
	return step{key: part}
}

// put returns node with v at p. What lies on the way is copied, so that maps shared with the caller stay.
func (p path) put(node, v any) (any, error) {
	if len(p) == 0 {
		return v, nil
	}
	if s := p[0]; s.key != "" {
		m, _ := node.(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		sub, err := p[1:].put(m[s.key], v)
		m[s.key] = sub
		return m, err
	}
	list, _ := node.([]any)
	list = slices.Clone(list)
	i := p[0].index
	if i > len(list) {
		return nil, fmt.Errorf("the list has %d elements; the next one is number %d", len(list), len(list))
	}
	if i == len(list) {
		list = append(list, nil)
	}
	sub, err := p[1:].put(list[i], v)
	list[i] = sub
	return list, err
}
