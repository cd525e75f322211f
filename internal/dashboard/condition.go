package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"weir"
)

// condition is a filter for JSON events, such as status=paid or order.total>100. The path leads
// through members of objects, and through elements of arrays by their index.
type condition struct {
	path     []string
	operator string // =, !=, < or >
	want     string
}

var conditionForm = regexp.MustCompile(`^([^=!<>]+?)\s*(=|!=|<|>)\s*(.*)$`)

func parseCondition(text string) (*condition, error) {
	m := conditionForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil || len(text) > maxSearch {
		return nil, weir.Errorf(weir.InvalidRequest, "Where must be a condition such as status=paid or order.total>100")
	}
	return &condition{strings.Split(strings.TrimSpace(m[1]), "."), m[2], m[3]}, nil
}

// mayHold reports whether the condition can hold for an event of this payload. It looks in the
// payload for the last name of the path, which is much faster than parsing the events. In the
// following cases the condition can hold although the payload lacks that name, so mayHold returns
// true:
//
//   - The operator is !=, which also holds for events without the name.
//   - The name is the index of an element.
//   - The payload has a backslash, so the name may be written with escapes.
func (c *condition) mayHold(payload []byte) bool {
	last := c.path[len(c.path)-1]
	_, notIndex := strconv.Atoi(last)
	return c.operator == "!=" || notIndex == nil || bytes.Contains(payload, []byte(last)) || bytes.IndexByte(payload, '\\') >= 0
}

// holds reports whether the condition holds for an event. For an event that is not JSON, or that has
// no value at the path, only != holds.
func (c *condition) holds(event []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(event))
	decoder.UseNumber() // large numbers would be rounded otherwise
	var value any
	found := decoder.Decode(&value) == nil
	for _, name := range c.path {
		switch v := value.(type) {
		case map[string]any:
			value, found = v[name], found && has(v, name)
		case []any:
			i, err := strconv.Atoi(name)
			if found = found && err == nil && i >= 0 && i < len(v); found {
				value = v[i]
			}
		default:
			found = false
		}
		if !found {
			return c.operator == "!="
		}
	}
	order := compare(textOf(value), c.want)
	switch c.operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	}
	return order > 0
}

func has(m map[string]any, name string) bool {
	_, ok := m[name]
	return ok
}

// textOf returns a value as users write it in a condition. Objects and arrays are JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	b, _ := json.Marshal(value) // never fails: a value that was decoded can be encoded
	return string(b)
}

// compare compares two texts as numbers if both are numbers, and otherwise as texts. So timestamps
// of the same format are compared by time.
func compare(a, b string) int {
	x, wrongX := strconv.ParseFloat(a, 64)
	y, wrongY := strconv.ParseFloat(b, 64)
	if wrongX == nil && wrongY == nil && x != y {
		return cmp.Compare(x, y)
	}
	if wrongX == nil && wrongY == nil && (strings.ContainsAny(a+b, ".eE")) {
		return 0 // the same number in two forms, such as 1000 and 1e3
	}
	return cmp.Compare(a, b)
}
