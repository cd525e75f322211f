package contract

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Event is one block of a text/event-stream: what stands between two empty lines.
type Event struct {
	ID      string
	HasID   bool
	Name    string // of the event; empty for a block without one
	Data    string
	HasData bool
	Retry   int // milliseconds; -1: none
	Comment bool
}

// Decoder reads a text/event-stream and fails on everything that the format does not allow, and on everything that it
// allows but that a client would drop without a word: fields that nobody knows, an event without data, half an event
// at the end.
type Decoder struct {
	r      *bufio.Reader
	skipLF bool // the last line ended with CR: an LF belongs to it
	first  bool
}

// NewDecoder makes a decoder.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, 64<<10), first: true}
}

// maxLine is beyond what 8 MiB in base64 with the fields around them take.
const maxLine = 16 << 20

// Next returns the next block. io.EOF: the stream ended between two blocks. Comments are blocks of their own, also when
// they stand inside another.
func (d *Decoder) Next() (Event, error) {
	e := Event{Retry: -1}
	begun := false
	var data []string
	for {
		line, err := d.line()
		if err == io.EOF && (begun || line != "") {
			return e, fmt.Errorf("the stream ended inside an event, after %q", Shorten(line))
		}
		if err != nil {
			return e, err
		}
		if line == "" {
			if !begun {
				continue // an empty line after a comment, or one too many: allowed
			}
			e.Data, e.HasData = strings.Join(data, "\n"), data != nil
			return e, e.check()
		}
		if line[0] == ':' {
			if begun {
				continue
			}
			return Event{Comment: true, Retry: -1}, nil
		}
		begun = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if name == "data" {
			data = append(data, value)
			continue
		}
		if err := e.set(name, value); err != nil {
			return e, err
		}
	}
}

// set takes a field that is not data.
func (e *Event) set(name, value string) error {
	switch name {
	case "event":
		if e.Name != "" || value == "" {
			return fmt.Errorf("event: %q after %q", value, e.Name)
		}
		e.Name = value
	case "id":
		if e.HasID || strings.ContainsRune(value, 0) {
			return fmt.Errorf("id: %q after %q", value, e.ID)
		}
		e.ID, e.HasID = value, true
	case "retry":
		ms, err := strconv.Atoi(value)
		if err != nil || !decimal.MatchString(value) || e.Retry >= 0 {
			return fmt.Errorf("retry: %q", value)
		}
		e.Retry = ms
	default:
		return fmt.Errorf("no client knows the field %q", Shorten(name))
	}
	return nil
}

// check refuses a block that a client would not show.
func (e *Event) check() error {
	if (e.Name != "" || e.HasID) && !e.HasData {
		return fmt.Errorf("event %q with id %q has no data: it is never shown", e.Name, e.ID)
	}
	return nil
}

var errNotUTF8 = errors.New("the stream is not UTF-8")

// line reads up to a CR, an LF or both. With io.EOF comes what was left without an end.
func (d *Decoder) line() (string, error) {
	var b []byte
	for {
		if _, err := d.r.Peek(1); err != nil {
			return string(b), err
		}
		chunk, _ := d.r.Peek(d.r.Buffered())
		if d.skipLF {
			d.skipLF = false
			if chunk[0] == '\n' {
				d.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			b = append(b, chunk...)
			d.r.Discard(len(chunk))
			if len(b) > maxLine {
				return "", errors.New("a line does not end")
			}
			continue
		}
		b = append(b, chunk[:end]...)
		d.skipLF = chunk[end] == '\r'
		d.r.Discard(end + 1)
		break
	}
	if !utf8.Valid(b) {
		return "", errNotUTF8
	}
	if d.first {
		d.first = false
		b = bytes.TrimPrefix(b, []byte("\ufeff"))
	}
	return string(b), nil
}
