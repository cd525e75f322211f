package manual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"weir/docs"
)

// object is a JSON object that keeps the order of its members, so that /openapi.json and the
// reference page have the order in which the description was written.
type object struct {
	names   []string
	members map[string]any // *object, []any, or a scalar
}

// MarshalJSON writes the members in the order in which they were set.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(o.members[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (o *object) set(name string, v any) {
	if _, ok := o.members[name]; !ok {
		o.names = append(o.names, name)
	}
	o.members[name] = v
}

// object returns the member of that name. If the member is missing or not an object, it returns an
// empty object, so that callers can chain calls without checks.
func (o *object) object(name string) *object {
	if m, ok := o.members[name].(*object); ok {
		return m
	}
	return &object{}
}

func (o *object) text(name string) string {
	s, _ := o.members[name].(string)
	return s
}

func (o *object) list(name string) []any {
	l, _ := o.members[name].([]any)
	return l
}

// parseYAML reads a YAML document and resolves anchors, aliases and merge keys, which JSON does not
// have.
func parseYAML(text []byte) (*object, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	if len(n.Content) != 1 {
		return nil, fmt.Errorf("parse YAML: want exactly one document")
	}
	v, err := fromYAML(n.Content[0])
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, fmt.Errorf("parse YAML: the top level is not an object")
	}
	return o, nil
}

// fromYAML converts a node into an *object, a []any or a scalar.
func fromYAML(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return fromYAML(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := fromYAML(item)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.MappingNode:
		o := &object{members: map[string]any{}}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			v, err := fromYAML(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			if key.Tag != "!!merge" {
				o.set(key.Value, v)
				continue
			}
			from, ok := v.(*object)
			if !ok {
				return nil, fmt.Errorf("line %d: merge: the value is not an object", key.Line)
			}
			for _, name := range from.names {
				o.set(name, from.members[name])
			}
		}
		return o, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return v, nil
}

// description is the OpenAPI document, parsed and as JSON.
type description struct {
	*object
	json []byte
}

// readDescription reads the embedded openapi.yaml.
func readDescription() (*description, error) {
	text, err := docs.Files.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	o, err := parseYAML(text)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return &description{o, b}, nil
}

// follow resolves the $ref of an object, if it has one. It also returns the last part of the
// reference, or "" if there was none.
func (d *description) follow(o *object) (target *object, name string) {
	for {
		ref := o.text("$ref")
		if ref == "" {
			return o, name
		}
		o = d.object
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			o, name = o.object(part), part
		}
	}
}
