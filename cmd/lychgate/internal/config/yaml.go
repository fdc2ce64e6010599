package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// checkYAML holds a file against the shape it has to fill, so that each mistake is reported at its line: all of them, joined.
func checkYAML(file string, raw []byte, shape reflect.Type) error {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil // an empty file sets nothing
	} else if err != nil {
		return &Error{Where: file, Reason: err.Error()}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return &Error{Where: file, Reason: "has more than one document"}
	}
	c := checker{file}
	return c.node(doc.Content[0], shape, nil)
}

type checker struct{ file string }

func (c checker) errorf(n *yaml.Node, p path, format string, args ...any) error {
	return &Error{fmt.Sprintf("%s:%d", c.file, n.Line), p.String(), fmt.Sprintf(format, args...)}
}

func (c checker) node(n *yaml.Node, t reflect.Type, p path) error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	t = deref(t)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // a key without a value keeps its default
	}
	switch {
	case isText(t):
		return c.scalar(n, t, p)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return c.mapping(n, t, p)
	case t.Kind() == reflect.Slice:
		return c.list(n, t, p)
	}
	return c.scalar(n, t, p)
}

func (c checker) scalar(n *yaml.Node, t reflect.Type, p path) error {
	if n.Kind != yaml.ScalarNode {
		return c.errorf(n, p, "want one value, have %s", nodeName(n))
	}
	if err := checkText(t, n.Value); err != nil {
		return c.errorf(n, p, "%s", err)
	}
	return nil
}

func (c checker) list(n *yaml.Node, t reflect.Type, p path) error {
	if n.Kind != yaml.SequenceNode {
		return c.errorf(n, p, "want a list, have %s", nodeName(n))
	}
	var faults []error
	for i, element := range n.Content {
		faults = append(faults, c.node(element, t.Elem(), p.with(step{index: i})))
	}
	return errors.Join(faults...)
}

func (c checker) mapping(n *yaml.Node, t reflect.Type, p path) error {
	if n.Kind != yaml.MappingNode {
		return c.errorf(n, p, "want keys with values, have %s", nodeName(n))
	}
	var faults []error
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			faults = append(faults, c.node(value, t, p))
			continue
		}
		sub := p.with(step{key: key.Value})
		if line, twice := seen[key.Value]; twice {
			faults = append(faults, c.errorf(key, sub, "stands here and at line %d", line))
			continue
		}
		seen[key.Value] = key.Line
		below, err := child(t, step{key: key.Value})
		if err != nil {
			faults = append(faults, c.errorf(key, sub, "%s", err))
			continue
		}
		faults = append(faults, c.node(value, below, sub))
	}
	return errors.Join(faults...)
}

func nodeName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "keys with values"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}
