package contract

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecoder(t *testing.T) {
	batch := Event{ID: "7", HasID: true, Name: "batch", Data: "{}", HasData: true, Retry: -1}
	for _, c := range []struct {
		name, text string
		want       []Event
		fault      string // part of the error; empty if the stream is correct
	}{
		{"nothing", "", nil, ""},
		{"a batch", "id: 7\nevent: batch\ndata: {}\n\n", []Event{batch}, ""},
		{"carriage returns", "id: 7\revent: batch\rdata: {}\r\r", []Event{batch}, ""},
		{"carriage returns and line feeds", "id: 7\r\nevent: batch\r\ndata: {}\r\n\r\n", []Event{batch}, ""},
		{"no space after the colon", "id:7\nevent:batch\ndata:{}\n\n", []Event{batch}, ""},
		{"a byte order mark", "\ufeffid: 7\nevent: batch\ndata: {}\n\n", []Event{batch}, ""},
		{"lines of data", "data: a\ndata\ndata:  b\n\n", []Event{{Data: "a\n\n b", HasData: true, Retry: -1}}, ""},
		{"a retry", "retry: 1000\n\n", []Event{{Retry: 1000}}, ""},
		{"a retry with an id", "retry: 1000\nid: 7\n\n", []Event{{Retry: 1000, ID: "7", HasID: true}}, ""},
		{"a retry with a name", "retry: 1000\nevent: batch\n\n", nil, "has no data"},
		{"an id alone", "id: 7\n\n", nil, "has no data"},
		{"a comment", ": still here\n\n", []Event{{Comment: true, Retry: -1}}, ""},
		{"a comment inside", "id: 7\n:\nevent: batch\ndata: {}\n\n", []Event{batch}, ""},
		{"two blocks", "retry: 5\n\nid: 7\nevent: batch\ndata: {}\n\n", []Event{{Retry: 5}, batch}, ""},
		{"cut inside an event", "id: 7\nevent: batch\ndata: {}\n", nil, "inside an event"},
		{"cut inside a line", "retry: 5\n\nid: 7", []Event{{Retry: 5}}, "inside an event"},
		{"no data", "id: 7\nevent: batch\n\n", nil, "has no data"},
		{"not UTF-8", "data: \xff\n\n", nil, "not UTF-8"},
		{"a retry that is not a number", "retry: 1s\n\n", nil, "retry"},
		{"an id with a NUL", "id: 7\x00\ndata: {}\n\n", nil, "id"},
		{"an unknown field", "seq: 7\ndata: {}\n\n", nil, "unknown field"},
		{"two names", "event: a\nevent: b\ndata: {}\n\n", nil, "event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
				d := NewDecoder(r)
				var got []Event
				for {
					e, err := d.Next()
					if err == nil {
						got = append(got, e)
						continue
					}
					if c.fault == "" && err != io.EOF || c.fault != "" && !strings.Contains(err.Error(), c.fault) {
						t.Errorf("got %v, want %q", err, c.fault)
					}
					break
				}
				if !reflect.DeepEqual(got, c.want) {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			}
		})
	}
}

// A decoder returns an event as soon as its empty line has arrived, also when lines end with CR
// alone. It must not wait for an LF that may never come.
func TestDecoderDoesNotWait(t *testing.T) {
	for _, end := range []string{"\n", "\r"} {
		r, w := io.Pipe()
		go w.Write([]byte("data: x" + end + end))
		if e, err := NewDecoder(r).Next(); err != nil || e.Data != "x" {
			t.Errorf("%q: got %+v, %v", end, e, err)
		}
		w.Close()
	}
}
