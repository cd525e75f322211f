package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// decode reads a whole stream and returns its events as text, one per line.
func decode(r io.Reader) (string, error) {
	d := newDecoder(r)
	var b strings.Builder
	for {
		e, err := d.next()
		if err == io.EOF {
			if d.retry > 0 {
				fmt.Fprintf(&b, "retry %v\n", d.retry)
			}
			return b.String(), nil
		}
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "%s/%s/%q\n", e.id, e.name, e.data)
	}
}

var streams = []struct{ name, in, want string }{
	{"one", "id: 7\nevent: batch\ndata: {}\n\n", "7/batch/\"{}\"\n"},
	{"any order", "data: {}\nid: 7\nevent: batch\n\n", "7/batch/\"{}\"\n"},
	{"CR LF", "id: 7\r\nevent: batch\r\ndata: {}\r\n\r\n", "7/batch/\"{}\"\n"},
	{"CR", "id: 7\revent: batch\rdata: {}\r\r", "7/batch/\"{}\"\n"},
	{"mixed line ends", "id: 7\revent: batch\r\ndata: {}\n\r\ndata: b\r\r", "7/batch/\"{}\"\n7//\"b\"\n"},
	{"no space", "id:7\ndata:a\n\n", "7//\"a\"\n"},
	{"two spaces", "data:  a\n\n", "//\" a\"\n"},
	{"several lines", "data: a\ndata:\ndata: b\n\n", "//\"a\\n\\nb\"\n"},
	{"an empty line of data", "data\n\n", "//\"\"\n"},
	{"comments", ":\n\n: hello\ndata: a\n:more\n\n:\n\n", "//\"a\"\n"},
	{"the id stays", "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", "1//\"a\"\n1//\"b\"\n//\"c\"\n"},
	{"an id with a zero byte", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", "1//\"a\"\n1//\"b\"\n"},
	{"an id without data counts", "id: 9\n\ndata: a\n\n", "9//\"a\"\n"},
	{"an event without data", "event: batch\n\ndata: a\n\n", "//\"a\"\n"},
	{"the last name counts", "event: a\nevent: b\ndata: x\n\n", "/b/\"x\"\n"},
	{"unknown fields", "what: 1\ndata: a\ndatum: b\n\n", "//\"a\"\n"},
	{"a byte order mark", "\ufeffdata: a\n\n", "//\"a\"\n"},
	{"only one byte order mark", "\ufeff\ufeffdata: a\n\ndata: b\n\n", "//\"b\"\n"},
	{"retry", "retry: 1500\n\n", "retry 1.5s\n"},
	{"invalid retry", "retry: -1\nretry: 1s\nretry: +5\nretry:\nretry: 99999999999\n\n", ""},
	{"cut off", "data: a\n\ndata: b\n", "//\"a\"\n"},
	{"cut off in a line", "data: a\n\ndata: b", "//\"a\"\n"},
	{"nothing", "", ""},
}

func TestDecoder(t *testing.T) {
	for _, s := range streams {
		for how, r := range map[string]io.Reader{
			"whole": strings.NewReader(s.in), "by bytes": iotest.OneByteReader(strings.NewReader(s.in)), "the last bytes together with EOF": iotest.DataErrReader(strings.NewReader(s.in)),
		} {
			if got, err := decode(r); err != nil || got != s.want {
				t.Errorf("%s, %s: got %q, %v; want %q", s.name, how, got, err, s.want)
			}
		}
	}
}

// The decoder returns an event as soon as its last line has ended, even if that line ends with CR.
func TestDecoderDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	d := newDecoder(r)
	go w.Write([]byte("data: a\r\r"))
	if e, err := d.next(); err != nil || string(e.data) != "a" {
		t.Errorf("got %q, %v; want a", e.data, err)
	}
	w.Close()
}

func TestDecoderBounds(t *testing.T) {
	first := func(r io.Reader) (int, error) {
		e, err := newDecoder(r).next()
		return len(e.data), err
	}
	largest := strings.Repeat("x", maxEvent)
	if n, err := first(strings.NewReader("data: " + largest + "\n\n")); err != nil || n != maxEvent {
		t.Errorf("the largest event: %d bytes, %v", n, err)
	}
	for name, in := range map[string]io.Reader{
		"a long line":    endless("data: x"),
		"a long comment": endless(": x"),
		"many lines":     endless("data: " + strings.Repeat("x", 8<<10) + "\n"),
		"one byte more":  strings.NewReader("data: " + largest + "x\n\n"),
		"one line more":  strings.NewReader("data: " + largest + "\ndata: x\n\n"),
		"a long field":   endless("x"),
	} {
		if _, err := first(in); err != errLongEvent {
			t.Errorf("%s: %v, want %v", name, err, errLongEvent)
		}
	}
	d := newDecoder(strings.NewReader("data: " + largest + "\n\ndata: a\n\ndata: b\n\n"))
	for range 3 {
		if _, err := d.next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(d.data) > keep || cap(d.line) > keep {
		t.Errorf("the decoder keeps %d and %d bytes after a long event, want at most %d", cap(d.data), cap(d.line), keep)
	}
}

// endless returns a reader that repeats s forever.
func endless(s string) io.Reader {
	block := strings.Repeat(s, 2<<10)
	return io.MultiReader(strings.NewReader(s), readerFunc(func(p []byte) (int, error) {
		return copy(p, block), nil
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestDecoderErrors(t *testing.T) {
	if _, err := decode(strings.NewReader("data: \xff\n\n")); err != errEventUTF8 {
		t.Errorf("invalid UTF-8: %v", err)
	}
	broken := errors.New("broken")
	if got, err := decode(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))); err != broken || got != "//\"a\"\n" {
		t.Errorf("got %q, %v; want the first event and %v", got, err, broken)
	}
}

// FuzzDecoder checks that the events do not depend on how the bytes are split into reads, and that
// they are those of a decoder that follows the standard literally.
func FuzzDecoder(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.in))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := decode(bytes.NewReader(b))
		pieces, err2 := decode(iotest.HalfReader(bytes.NewReader(b)))
		bytewise, err3 := decode(iotest.OneByteReader(bytes.NewReader(b)))
		if whole != pieces || whole != bytewise || err != err2 || err != err3 {
			t.Fatalf("%q: whole %q, %v; in pieces %q, %v; by bytes %q, %v", b, whole, err, pieces, err2, bytewise, err3)
		}
		if want := decodeByStandard(string(b)); err == nil && whole != want {
			t.Errorf("%q: got %q, want %q", b, whole, want)
		}
	})
}

// decodeByStandard decodes a whole stream, step by step as the HTML standard describes it.
func decodeByStandard(s string) string {
	var out strings.Builder
	var id, name, data string
	var retry time.Duration
	s = strings.TrimPrefix(s, "\ufeff")
	for {
		end := strings.IndexAny(s, "\r\n")
		if end < 0 {
			break
		}
		line := s[:end]
		if strings.HasPrefix(s[end:], "\r\n") {
			end++
		}
		s = s[end+1:]
		if line == "" {
			if data != "" {
				fmt.Fprintf(&out, "%s/%s/%q\n", id, name, strings.TrimSuffix(data, "\n"))
			}
			name, data = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data += value + "\n"
		case "event":
			name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "retry":
			var ms uint64
			if n, err := fmt.Sscanf(value, "%d", &ms); n == 1 && err == nil && strings.Trim(value, "0123456789") == "" && ms < 1<<32 {
				retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if retry > 0 {
		fmt.Fprintf(&out, "retry %v\n", retry)
	}
	return out.String()
}
