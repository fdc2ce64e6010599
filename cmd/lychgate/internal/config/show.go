package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// Hidden stands in place of a secret.
const Hidden = "********"

// Show writes the effective configuration as YAML, keys in the order of the struct, secrets hidden.
func Show(config any) ([]byte, error) {
	return yaml.Marshal(nodeOf(reflect.ValueOf(config), ""))
}

// Tree is the same for JSON.
func Tree(config any) (map[string]any, error) {
	var out map[string]any
	if err := nodeOf(reflect.ValueOf(config), "").Decode(&out); err != nil {
		return nil, fmt.Errorf("convert configuration: %w", err)
	}
	return out, nil
}

func nodeOf(v reflect.Value, key string) *yaml.Node {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		v = v.Elem()
	}
	if text, ok := textOf(v); ok {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: redact(key, text)}
	}
	switch v.Kind() {
	case reflect.Struct:
		return structNode(v)
	case reflect.Map:
		return mapNode(v)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i), key))
		}
		return n
	default:
		return scalarNode(v)
	}
}

func scalarNode(v reflect.Value) *yaml.Node {
	n := new(yaml.Node)
	if err := n.Encode(v.Interface()); err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(v.Interface())}
	}
	return n
}

func structNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		n.Content = append(n.Content, keyNode(f.key), nodeOf(v.FieldByIndex(f.index), f.key))
	}
	return n
}

func mapNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for it := v.MapRange(); it.Next(); {
		key := it.Key().String()
		n.Content = append(n.Content, keyNode(key), nodeOf(it.Value(), key))
	}
	return n
}

func keyNode(key string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
}

// textOf is the one-word form of values that have one.
func textOf(v reflect.Value) (string, bool) {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String(), true
	case encoding.TextMarshaler:
		if text, err := x.MarshalText(); err == nil {
			return string(text), true
		}
	case fmt.Stringer:
		if isText(v.Type()) {
			return x.String(), true
		}
	case string:
		return x, true
	}
	if v.Kind() == reflect.String {
		return v.String(), true
	}
	return "", false
}

var (
	secretKey     = regexp.MustCompile(`(^|_)(password|passphrase|secret|token|verifier)$`)
	secretURL     = regexp.MustCompile(`(\w+://[^:/@\s]*:)\S+@`) // up to the last @: a password may hold any
	secretKeyword = regexp.MustCompile(`(?i)\b(password|sslpassword|passphrase)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)
)

// redact hides what must not be shown: the whole value of a key that is named for a secret, otherwise
// passwords inside URLs and connection strings.
func redact(key, text string) string {
	if text == "" {
		return text
	}
	if secretKey.MatchString(key) {
		return Hidden
	}
	text = secretURL.ReplaceAllString(text, "${1}"+Hidden+"@")
	return secretKeyword.ReplaceAllString(text, "${1}${2}"+Hidden)
}
