package client

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestEvent(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ in, want, fault string }{
		{` { "a" : [ 1 , 2.0 ] , "b" : " " } `, `{"a":[1,2.0],"b":" "}`, ""},
		{`"<&>\u2028"`, `"<&>\u2028"`, ""},
		{`1e400`, `1e400`, ""},
		{`"\ud83d\ude00\\ud83d"`, `"\ud83d\ude00\\ud83d"`, ""},
		{`{"a":{"a":1},"b":{"a":1}}`, `{"a":{"a":1},"b":{"a":1}}`, ""},
		{nested(998), nested(998), ""},
		{``, "", "unexpected end"},
		{`{"a":1`, "", "unexpected end"},
		{`1 2`, "", "invalid character"},
		{`nul`, "", "invalid character"},
		{`{"a":1,"a":2}`, "", "used twice"},
		{`{"a":1,"\u0061":2}`, "", "used twice"},
		{`[{"x":{"a":1,"b":[{}],"a":2}}]`, "", "used twice"},
		{"\"\xff\"", "", "UTF-8"},
		{`"\ud83d"`, "", "surrogate"},
		{`"\ude00\ud83d"`, "", "surrogate"},
		{`"\ud83d\u0041"`, "", "surrogate"},
		{`"\ud83dx\ude00"`, "", "surrogate"},
		{`{"\udc00":1}`, "", "surrogate"},
		{nested(999), "", "nested more than 998 levels deep"},
	} {
		got, err := Event(json.RawMessage(c.in))
		if string(got) != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("Event(%.40q) = %.40q, %v; want %.40q, %s", c.in, got, err, c.want, c.fault)
		}
	}
	if got, err := Event(struct{ A string }{"<\xff>"}); err != nil || string(got) != `{"A":"\u003c\ufffd\u003e"}` {
		t.Errorf("a Go string with invalid UTF-8: got %s, %v", got, err)
	}
}

// FuzzEvent compares Event with jsontext, whose rules are those of the service: both accept the
// same events.
func FuzzEvent(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\ud83d\ude00"}]}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud83d"`, "\"\xff\"", ` [ ] `, `-0.1e+5`, `[1,,2]`, `"\u12"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Event(json.RawMessage(b))
		value := jsontext.Value(slices.Clone(b))
		valid := value.IsValid()
		if strings.Count(string(b), "[")+strings.Count(string(b), "{") > maxEventDepth {
			return // jsontext allows more levels than Event
		}
		if (err == nil) != valid {
			t.Fatalf("Event(%q): error %v; valid according to jsontext: %t", b, err, valid)
		}
		if err == nil {
			if value.Compact(); string(got) != string(value) {
				t.Errorf("Event(%q) = %q, want %q", b, got, value)
			}
		}
	})
}

func TestElements(t *testing.T) {
	for in, want := range map[string][]string{
		`[]`: {}, ` [ ] `: {}, `[1]`: {"1"}, `[1,"a,]\"",{"b":[2,3]},[]]`: {"1", `"a,]\""`, `{"b":[2,3]}`, "[]"}, "[ 1 ,\n2 ]": {"1", "2"}, `["\\"]`: {`"\\"`},
	} {
		var got []string
		for _, e := range elements([]byte(strings.TrimSpace(in))) {
			got = append(got, string(e))
		}
		if !slices.Equal(got, want) {
			t.Errorf("elements(%s) = %q, want %q", in, got, want)
		}
	}
}

func FuzzElements(f *testing.F) {
	f.Add([]byte(`[1,"a,]\"",{"b":[2,3]},[]]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var want []json.RawMessage
		if len(b) == 0 || b[0] != '[' || json.Unmarshal(b, &want) != nil {
			return
		}
		if got := elements(b); !slices.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("elements(%s) = %q, want %q", b, got, want)
		}
	})
}
