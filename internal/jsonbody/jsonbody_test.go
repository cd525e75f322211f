package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

func TestEvents(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		body, want string // an empty want means that the body is refused
		count      uint32
	}{
		{`{"events":[]}`, `[]`, 0},
		{`{"events":[1,"a",null,true,false,{},[]]}`, `[1,"a",null,true,false,{},[]]`, 7},
		{" \t\r\n{ \"events\" : [ 1 ,\n 2 , { \"a\" : [ ] , \"b\" : { } } ] } \n", `[1,2,{"a":[],"b":{}}]`, 3},
		{`{"x":{"a":1},"events":[0],"y":[[],{"events":5}]}`, `[0]`, 1},
		{`{"e\u0076ents":[7]}`, `[7]`, 1},
		{`{"events":[[1,2,[3]],{"events":[1,2,3]}]}`, `[[1,2,[3]],{"events":[1,2,3]}]`, 2},

		// Names such as B8 are numbers in the project's catalogue of bad inputs.

		// B8: numbers stay as they were written
		{`{"events":[1e999999,-0,1E+2,0.10,123456789012345678901234567890]}`, `[1e999999,-0,1E+2,0.10,123456789012345678901234567890]`, 5},
		// B10: strings with unusual characters stay as they were written
		{`{"events":["\u0000 \r\n \u2028` + "\u2028\u2029" + ` \/"]}`, `["\u0000 \r\n \u2028` + "\u2028\u2029" + ` \/"]`, 1},
		{`{"events":["\ud83d\ude00 😀 é"]}`, `["\ud83d\ude00 😀 é"]`, 1},
		{`{"events":["        spaces   stay    "  ]}`, `["        spaces   stay    "]`, 1},

		// B1, B14, B15, B12: bodies that are not one object with an array of events
		{``, ``, 0}, {` `, ``, 0}, {`null`, ``, 0}, {`[]`, ``, 0}, {`{}`, ``, 0}, {`"events"`, ``, 0}, {`1`, ``, 0},
		{`{"events":null}`, ``, 0}, {`{"events":{}}`, ``, 0}, {`{"events":"[]"}`, ``, 0}, {`{"events"}`, ``, 0}, {`{"events":}`, ``, 0},
		{`{"events":[]} x`, ``, 0}, {`{"events":[]}{"events":[]}`, ``, 0}, {`{"events":[]},`, ``, 0}, {`{"events":[]}` + "\x00", ``, 0},
		{"\xef\xbb\xbf" + `{"events":[]}`, ``, 0}, {"{\x00\"\x00e\x00", ``, 0}, {"\xff\xfe{\x00", ``, 0},
		{`{"Events":[]}`, ``, 0}, {`{"EVENTS":[]}`, ``, 0}, {`{"events":[],"events":[]}`, ``, 0}, {`{"events":[],"event\u0073":[]}`, ``, 0},

		// C2: invalid JSON syntax
		{`{"events":[1,]}`, ``, 0}, {`{"events":[,1]}`, ``, 0}, {`{"events":[1 2]}`, ``, 0}, {`{"events":[1],}`, ``, 0}, {`{,"events":[1]}`, ``, 0},
		{`{"events":[1]`, ``, 0}, {`{"events":[1`, ``, 0}, {`{"events":[`, ``, 0}, {`{"events":["a`, ``, 0}, {`{"events":[{"a"`, ``, 0}, {`{"ev`, ``, 0},
		{`{"events":[1}`, ``, 0}, {`{"events":[1}]`, ``, 0}, {`{"events":[{]}`, ``, 0}, {`{'events':[]}`, ``, 0}, {`{events:[]}`, ``, 0},
		{`{"events":[/*x*/]}`, ``, 0}, {`{"events":[NaN]}`, ``, 0}, {`{"events":[Infinity]}`, ``, 0}, {`{"events":[tru]}`, ``, 0}, {`{"events":[nul`, ``, 0},
		{`{"events":[True]}`, ``, 0}, {`{"events":[truee]}`, ``, 0}, {`{"events":["a" "b"]}`, ``, 0}, {`{"events":[{"a":1 "b":2}]}`, ``, 0}, {`{"events":[{"a"::1}]}`, ``, 0},
		{`{"events":[01]}`, ``, 0}, {`{"events":[+1]}`, ``, 0}, {`{"events":[1.]}`, ``, 0}, {`{"events":[.1]}`, ``, 0}, {`{"events":[1e]}`, ``, 0},
		{`{"events":[1e+]}`, ``, 0}, {`{"events":[-]}`, ``, 0}, {`{"events":[--1]}`, ``, 0}, {`{"events":[0x1]}`, ``, 0}, {`{"events":[1_0]}`, ``, 0},
		{"{\"events\":[1\v]}", ``, 0}, {"{\"events\":[1\u00a0]}", ``, 0}, {"{\"events\":[1\x00]}", ``, 0},

		// B9: invalid strings
		{"{\"events\":[\"\xff\"]}", ``, 0}, {"{\"events\":[\"\xc0\xaf\"]}", ``, 0}, {"{\"events\":[\"\xed\xa0\x80\"]}", ``, 0}, {"{\"events\":[\"\xf4\x90\x80\x80\"]}", ``, 0},
		{"{\"events\":[\"é\xff\"]}", ``, 0}, {"{\"events\":[\"\xe2\x82\"]}", ``, 0}, {"{\"\xff\":1,\"events\":[]}", ``, 0},
		{`{"events":["\ud800"]}`, ``, 0}, {`{"events":["\udc00"]}`, ``, 0}, {`{"events":["\ud800\u0041"]}`, ``, 0}, {`{"events":["\ud800x"]}`, ``, 0}, {`{"events":["\ud800\ud800"]}`, ``, 0}, {`{"events":["\udc00\udc00"]}`, ``, 0},
		{`{"events":["\x41"]}`, ``, 0}, {`{"events":["\u12"]}`, ``, 0}, {`{"events":["\u12g4"]}`, ``, 0}, {`{"events":["\U0041"]}`, ``, 0}, {`{"events":["\`, ``, 0}, {`{"events":["\u`, ``, 0},
		{"{\"events\":[\"a\nb\"]}", ``, 0}, {"{\"events\":[\"a\x1fb\"]}", ``, 0}, {"{\"events\":[\"12345678\x00\"]}", ``, 0}, {"{\"events\":[\"\x7f\"]}", "[\"\x7f\"]", 1},

		// B7: duplicate names at any depth, inside and outside of the events, with and without
		// escapes
		{`{"events":[{"a":1,"a":2}]}`, ``, 0}, {`{"events":[{"a":1,"\u0061":2}]}`, ``, 0}, {`{"events":[{"\u0061":1,"a":2}]}`, ``, 0}, {`{"events":[{"\u0061":1,"\u0061":2}]}`, ``, 0},
		{`{"x":{"a":1,"a":2},"events":[]}`, ``, 0}, {`{"events":[],"x":[{"":1,"":2}]}`, ``, 0}, {`{"x":1,"events":[],"x":2}`, ``, 0},
		{`{"events":[ {"b":1, "c":{"b":1}, "b":2}]}`, ``, 0}, {`{"events":[ { "b" : 1 , "c" : 1 , "d" : 1 , "b" : 2 } ] }`, ``, 0},
		{`{"events":[{"a":{"a":{"a":1}}},{"a":1}]}`, `[{"a":{"a":{"a":1}}},{"a":1}]`, 2},
		{`{"events":[{"x":{"a":1,"\u0062":1},"a":2,"b":{"a":3},"\u0063":4}]}`, `[{"x":{"a":1,"\u0062":1},"a":2,"b":{"a":3},"\u0063":4}]`, 1},
		{`{"events":[{"a":1,"A":2,"a ":3,"":4}]}`, `[{"a":1,"A":2,"a ":3,"":4}]`, 1},

		// B5: the outer object and the array of events count as two of the 1,000 levels
		{`{"events":[` + nest(998) + `]}`, `[` + nest(998) + `]`, 1}, {`{"events":[` + nest(999) + `]}`, ``, 0}, {`{"x":` + nest(1000) + `,"events":[]}`, ``, 0},
		{`{"events":[` + strings.Repeat(`{"":`, 998) + "0" + strings.Repeat(`}`, 998) + `]}`, `[` + strings.Repeat(`{"":`, 998) + "0" + strings.Repeat(`}`, 998) + `]`, 1},
		{`{"events":[` + strings.Repeat(`{"":`, 999) + "0" + strings.Repeat(`}`, 999) + `]}`, ``, 0},
		{`{"events":` + strings.Repeat("[", 4_000_000), ``, 0},
	} {
		short := c.body[:min(len(c.body), 60)]
		got, count, err := Events([]byte(c.body))
		var refusal *weir.Error
		switch {
		case c.want == "" && (!errors.As(err, &refusal) || refusal.Code != weir.InvalidRequest):
			t.Errorf("%q: got error %v, want a refusal", short, err)
		case c.want != "" && err != nil:
			t.Errorf("%q: %v", short, err)
		case string(got) != c.want || count != c.count:
			t.Errorf("%q: %d events %q, want %d %q", short, count, got, c.count, c.want)
		}
	}
}

// The body of an append under /ds is an array of messages, or one message. A request may be handled
// twice, so the function messages must return its own result unchanged.
func TestMessages(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	object := func(n int) string { return strings.Repeat(`{"":`, n) + "0" + strings.Repeat(`}`, n) }
	for _, c := range []struct {
		body, want string // an empty want means that the body is refused
		count      uint32
	}{
		{`[]`, `[]`, 0}, {" [\n] ", `[]`, 0}, {`[ [] , {} ]`, `[[],{}]`, 2}, {`[[1,2],3]`, `[[1,2],3]`, 2},
		{`{"a": 1}`, `[{"a":1}]`, 1}, {` { "a" : [ 1 , 2 ] } `, `[{"a":[1,2]}]`, 1}, {`{"events": [1, 2]}`, `[{"events":[1,2]}]`, 1},
		{`{"a":{"events":[1, 2]}, "b":[ ]}`, `[{"a":{"events":[1,2]},"b":[]}]`, 1},
		{` "x y" `, `["x y"]`, 1}, {`7`, `[7]`, 1}, {"\ttrue\n", `[true]`, 1}, {`null`, `[null]`, 1},
		{``, ``, 0}, {` `, ``, 0}, {`1 2`, ``, 0}, {`[1] 2`, ``, 0}, {`[1]]`, ``, 0}, {`{},`, ``, 0}, {`[1,]`, ``, 0}, {`[1`, ``, 0}, {`]`, ``, 0}, {`,`, ``, 0}, {`"x`, ``, 0},
		{`{"a":1,"a":2}`, ``, 0}, {`[{"a":1, "\u0061":2}]`, ``, 0}, {"\"\xff\"", ``, 0},
		{nest(999), nest(999), 1}, {nest(1000), ``, 0},
		{object(998), `[` + object(998) + `]`, 1}, {object(999), ``, 0},
	} {
		short := c.body[:min(len(c.body), 60)]
		got, count, err := Messages([]byte(c.body))
		var refusal *weir.Error
		if c.want == "" {
			if !errors.As(err, &refusal) || refusal.Code != weir.InvalidRequest {
				t.Errorf("%q: got %q and error %v, want a refusal", short, got, err)
			}
			continue
		}
		if err != nil || string(got) != c.want || count != c.count {
			t.Errorf("%q: %d messages %q, %v; want %d %q", short, count, got, err, c.count, c.want)
		}
		if again, n, err := Messages(got); err != nil || string(again) != c.want || n != c.count {
			t.Errorf("%q gives %q, and then %d messages %q, %v", short, c.want, n, again, err)
		}
	}
}

func TestBodyEndsTooEarly(t *testing.T) {
	for body, want := range map[string]string{`{`: "after 1 byte", `{"`: "after 2 bytes"} {
		if _, _, err := Messages([]byte(body)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want an error that ends with %q", body, err, want)
		}
	}
}

// The scanner finds a duplicate name among many names, at any two positions, whether or not it has
// to remove white space.
func TestEventsManyNames(t *testing.T) {
	for _, count := range []int{2, few, few + 1, few + 2, 63, 64, 65, 1000, 100_000} {
		for _, space := range []string{"", "\n  "} {
			a, b := rand.IntN(count), rand.IntN(count)
			for _, twice := range []bool{false, true} {
				var body strings.Builder
				body.WriteString(`{"events":[{"in":{}},{`)
				for i := range count {
					name := fmt.Sprintf(`n%d`, i)
					if twice && i == max(a, b) {
						name = fmt.Sprintf(`\u006e%d`, min(a, b))
					}
					fmt.Fprintf(&body, `%s"%s":{"n":%d},`, space, name, i)
				}
				body.WriteString(`"last":0}]}`)
				_, _, err := Events([]byte(body.String()))
				if refused := err != nil; refused != (twice && a != b) {
					t.Errorf("object of %d names, names %d and %d equal: %v, white space %q: got error %v", count, a, b, twice, space, err)
				}
			}
		}
	}
}

// TestEventsMemory checks how much memory the scanner allocates for the worst bodies, in addition
// to the bodies themselves (B4, B6).
func TestEventsMemory(t *testing.T) {
	var names strings.Builder
	names.WriteString(`{"events":[{"":0`)
	for i := 0; names.Len() < weir.MaxBody-20; i++ {
		fmt.Fprintf(&names, `,"%x":0`, i)
	}
	names.WriteString(`}]}`)
	for _, c := range []struct {
		name, body string
		most       uint64
	}{
		{"four million zeros", `{"events":[0` + strings.Repeat(",0", (weir.MaxBody-14)/2) + `]}`, 64 << 10},
		{"one long string", `{"events":["` + strings.Repeat("x", weir.MaxBody-14) + `"]}`, 64 << 10},
		{"white space", strings.Repeat(" ", weir.MaxBody-13) + `{"events":[]}`, 64 << 10},
		{"a million names", names.String(), 64 << 20},
	} {
		for kind, parse := range map[string]func([]byte) ([]byte, uint32, error){"Events": Events, "Messages": Messages} {
			body := []byte(c.body)
			if kind == "Messages" { // the function Messages gets only the array
				body = body[bytes.IndexByte(body, '[') : len(body)-1]
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, _, err := parse(body); err != nil {
				t.Errorf("%s of %s: %v", kind, c.name, err)
			}
			runtime.ReadMemStats(&after)
			spent := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s of %s: %d KiB allocated", kind, c.name, spent>>10)
			if spent > c.most {
				t.Errorf("%s of %s: %d bytes allocated, want at most %d", kind, c.name, spent, c.most)
			}
		}
	}
}

// The loops of the scanner examine eight bytes at a time. So the test tries every byte value at
// every offset of a string and of white space, and then random mixtures of bytes that matter. The
// scanner must accept a body exactly if encoding/json accepts it and the body is valid UTF-8.
func TestEventsAgainstEncodingJSON(t *testing.T) {
	compare := func(body string) {
		t.Helper()
		want := json.Valid([]byte(body)) && utf8.ValidString(body)
		_, _, err := Events([]byte(body))
		if (err == nil) != want {
			t.Fatalf("%q: the scanner returned %v; encoding/json accepts the body: %v", body, err, want)
		}
		if compacted := new(bytes.Buffer); want {
			got, _, _ := Events([]byte(body))
			if json.Compact(compacted, []byte(body)); fmt.Sprintf(`{"events":%s}`, got) != compacted.String() {
				t.Fatalf("%q: got %q, encoding/json has %q", body, got, compacted)
			}
		}
	}
	for _, size := range []int{1, 7, 8, 9, 41, 80} {
		for c := range 256 {
			for at := range size {
				text := []byte(strings.Repeat("x", size))
				text[at] = byte(c)
				compare(`{"events":["` + string(text) + `"]}`)
				text = bytes.Repeat([]byte(" "), size)
				text[at] = byte(c)
				compare(`{"events":[1,` + string(text) + `2]}`)
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 5))
	pieces := []string{" ", "\n", "\t", "\r", "x", "yyyyyyyy", "é", "世界", "😀", `\n`, `\\`, `\"`, "\x7f", "!", "#", "[", "]", "\x1f", "\xff", `"`, "\\", "\x00", "        "}
	for range 40_000 {
		var text, gap string
		common := rng.IntN(2) == 0 // half of the bodies have only pieces that are valid in a string
		for range rng.IntN(12) {
			n := len(pieces)
			if common {
				n = 17
			}
			text += pieces[4+rng.IntN(n-4)]
			gap += pieces[rng.IntN(4)] + strings.Repeat(" ", rng.IntN(20))
		}
		compare(gap + `{"events":[` + gap + `"` + text + `",` + gap + `"a"` + gap + `]}` + gap)
	}
}

// FuzzEvents compares the scanner with jsontext. Both must accept the same bodies and return the
// same array of events. They differ only in the allowed depth, which the function oracle checks. A
// body that the scanner accepts must also be valid for encoding/json.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{`{"events":[]}`, `{"a":[{"b":"\u00e9é\ud83d\ude00"}],"events":[ 1 , {"x" : -1.5e-7 , "y":null} ],"c":true}`,
		"\t{ \"events\"\n:\r[ \"\xff\" ] }", `{"events":[{"a":1,"a":2}]}`, `{"\u0065vents":["\ud800"]}`, `{"events":[[[[[]]]]]}{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want, count, valid := oracle(body)
		got, n, err := Events(bytes.Clone(body))
		if (err == nil) != valid {
			t.Fatalf("%q: the scanner returned error %v; jsontext accepts the body: %v", body, err, valid)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(got, want) || n != count {
			t.Fatalf("%q: got %d events %q, jsontext has %d events %q", body, n, got, count, want)
		}
		if !json.Valid(body) || !json.Valid(got) {
			t.Fatalf("%q: encoding/json refuses the body or the events", body)
		}
		again, m, err := Events([]byte(`{"events":` + string(got) + `}`))
		if err != nil || !bytes.Equal(again, got) || m != n {
			t.Fatalf("scanning %q again gives %q, %v", got, again, err)
		}
		if again, m, err = Messages(bytes.Clone(got)); err != nil || !bytes.Equal(again, got) || m != n {
			t.Fatalf("the messages of %q are %q, %v", got, again, err)
		}
	})
}

// oracle does the same as the function events, but with jsontext.
func oracle(body []byte) (payload []byte, count uint32, valid bool) {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, 0, false
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, 0, false
		}
		is := name.String() == "events"
		value, err := d.ReadValue()
		if err != nil || is && value.Kind() != '[' {
			return nil, 0, false
		}
		if !is {
			continue
		}
		payload = value.Clone()
		if (*jsontext.Value)(&payload).Compact() != nil {
			return nil, 0, false
		}
		var elements []json.RawMessage
		if json.Unmarshal(payload, &elements) != nil {
			return nil, 0, false
		}
		count = uint32(len(elements))
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, 0, false
	}
	if _, err := d.ReadToken(); err == nil || err.Error() != "EOF" {
		return nil, 0, false
	}
	return payload, count, payload != nil && depth(body) <= maxDepth
}

// depth returns the number of nested levels of a valid JSON text.
func depth(body []byte) (most int) {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := d.ReadToken(); err != nil {
			return most
		}
		most = max(most, d.StackDepth())
	}
}

func BenchmarkEvents(b *testing.B) {
	event := `{"id":12345,"type":"order.created","at":"2026-11-15T00:00:00.000Z","amount":12.5,"tags":["a","b"],"note":"` + strings.Repeat("n", 80) + `"}`
	for _, size := range []int{1 << 10, 1 << 20} {
		body := `{"events":[` + event
		for len(body) < size {
			body += strings.Repeat(","+event, 1+len(body)/(len(event)*2))
		}
		body += `]}`
		buf := make([]byte, len(body))
		b.Run(fmt.Sprintf("scanner/%d", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				copy(buf, body)
				if _, _, err := Events(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("jsontext/%d", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			d := new(jsontext.Decoder)
			for b.Loop() {
				copy(buf, body)
				d.Reset(bytes.NewBuffer(buf))
				for {
					if _, err := d.ReadToken(); err != nil {
						break
					}
				}
			}
		})
	}
}
