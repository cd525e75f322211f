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

// Event is one block of a text/event-stream: the lines between two empty lines.
type Event struct {
	ID      string
	HasID   bool
	Name    string // value of the event field; empty if the block has none
	Data    string
	HasData bool
	Retry   int // milliseconds; -1 if the block has no retry field
	Comment bool
}

// Decoder reads a text/event-stream. It fails on input that the format forbids, and on input that
// clients would drop silently: unknown fields, an event without data, an incomplete event at the
// end.
type Decoder struct {
	r      *bufio.Reader
	skipLF bool // the last line ended with CR, so an LF that follows belongs to it
	first  bool // the next line is the first, which may begin with a byte order mark
}

// NewDecoder returns a decoder for r.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, 64<<10), first: true}
}

// maxLine is more than the longest line of a correct server: 8 MiB in base64 and a few fields.
const maxLine = 16 << 20

// Next returns the next block, or io.EOF if the stream ended between two blocks. A comment counts
// as a block of its own, except inside another block, where it is skipped.
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
				continue // the format allows empty lines between blocks
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

// set stores a field other than data.
func (e *Event) set(name, value string) error {
	switch name {
	case "event":
		if e.Name != "" || value == "" {
			return fmt.Errorf("event field %q is empty, or is a second one after %q", value, e.Name)
		}
		e.Name = value
	case "id":
		if e.HasID || strings.ContainsRune(value, 0) {
			return fmt.Errorf("id field %q contains NUL, or is a second one after %q", value, e.ID)
		}
		e.ID, e.HasID = value, true
	case "retry":
		ms, err := strconv.Atoi(value)
		if err != nil || !decimal.MatchString(value) || e.Retry >= 0 {
			return fmt.Errorf("retry field %q is not a number, or is a second one", value)
		}
		e.Retry = ms
	default:
		return fmt.Errorf("unknown field %q", Shorten(name))
	}
	return nil
}

// check returns an error for a block that clients would drop: an event without data. A block that
// has only an id and a retry field is correct: clients remember both.
func (e *Event) check() error {
	if (e.Name != "" || e.HasID && e.Retry < 0) && !e.HasData {
		return fmt.Errorf("event %q with id %q has no data, so clients drop it", e.Name, e.ID)
	}
	return nil
}

var errNotUTF8 = errors.New("the stream is not UTF-8")

// line reads a line that ends with CR, LF or both. At the end of the input it returns io.EOF and
// the incomplete last line.
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
				return "", errors.New("line too long")
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
