package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A field is a key that a struct knows.
type field struct {
	key   string
	typ   reflect.Type
	index []int // for reflect.Value.FieldByIndex
}

// fieldsOf lists the keys of a struct in their order. Embedded structs tagged ",squash" count as its own.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		switch {
		case options == "squash":
			for _, sub := range fieldsOf(f.Type) {
				sub.index = append([]int{i}, sub.index...)
				out = append(out, sub)
			}
		case key != "" && key != "-":
			out = append(out, field{key, f.Type, []int{i}})
		}
	}
	return out
}

// Keys lists the keys of a configuration at all levels, each without those above it.
func Keys(config any) []string {
	var out []string
	seen := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for t = deref(t); t.Kind() == reflect.Slice; t = deref(t.Elem()) {
		}
		if t.Kind() != reflect.Struct || isText(t) {
			return
		}
		for _, f := range fieldsOf(t) {
			if !seen[f.key] {
				seen[f.key] = true
				out = append(out, f.key)
			}
			walk(f.typ)
		}
	}
	walk(reflect.TypeOf(config))
	return out
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.key)
	}
	return keys
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isText reports whether values of t are written as one word although they are not strings.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textType) }

// child is the type one step below t.
func child(t reflect.Type, s step) (reflect.Type, error) {
	t = deref(t)
	switch {
	case s.key == "" && t.Kind() == reflect.Slice:
		return t.Elem(), nil
	case s.key == "":
		return nil, fmt.Errorf("not a list, so it has no element %d", s.index)
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() == reflect.Slice:
		return nil, fmt.Errorf("a list: name an element by its number before %q", s.key)
	case t.Kind() != reflect.Struct || isText(t):
		return nil, fmt.Errorf("has no keys below it")
	}
	for _, f := range fieldsOf(t) {
		if f.key == s.key {
			return f.typ, nil
		}
	}
	return nil, fmt.Errorf("unknown key%s", suggestion(s.key, keysOf(t)))
}

// resolve finds the type of the value at p.
func (p path) resolve(t reflect.Type) (reflect.Type, error) {
	for _, s := range p {
		next, err := child(t, s)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return t, nil
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// parseText reads a value that comes as text into a form that unmarshalling takes.
func parseText(t reflect.Type, text string) (any, error) {
	t = deref(t)
	if t.Kind() == reflect.Slice && !isText(t) {
		var list []any
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			v, err := parseText(t.Elem(), part)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	if err := checkText(t, text); err != nil {
		return nil, err
	}
	return text, nil
}

// checkText says why a scalar does not fit, in words for whoever wrote it.
func checkText(t reflect.Type, text string) error {
	var err error
	var want string
	switch {
	case t == durationType:
		_, err = time.ParseDuration(text)
		want = "a duration with its unit, such as 250ms or 5s"
	case isText(t):
		if err = reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return err
		}
	case t.Kind() == reflect.Bool:
		_, err = strconv.ParseBool(text)
		want = "true or false"
	case isInt(t):
		_, err = strconv.ParseInt(text, 10, t.Bits())
		want = "a whole number"
	case isUint(t):
		_, err = strconv.ParseUint(text, 10, t.Bits())
		want = "a whole number, not negative"
	case t.Kind() == reflect.Float64, t.Kind() == reflect.Float32:
		_, err = strconv.ParseFloat(text, t.Bits())
		want = "a number"
	case t.Kind() == reflect.String:
	default:
		return fmt.Errorf("want %s, have one value", kindName(t))
	}
	if err != nil {
		return fmt.Errorf("want %s, have %q", want, text)
	}
	return nil
}

func isInt(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 }

func isUint(t reflect.Type) bool { return t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 }

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "keys with values"
	default:
		return "one value"
	}
}
