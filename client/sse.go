package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"weir"
)

// event is one event of a text/event-stream. Its data is valid until the next event is read.
type event struct {
	id   string // id of this event, or of the last event before it that had an id
	name string // name of the event; empty means "message"
	data []byte
}

// maxEvent limits the data of an event: 8 MiB in base64, plus room for the JSON members around it.
const maxEvent = weir.MaxBody/3*4 + 64<<10

// keep is the largest buffer that a decoder keeps between events.
const keep = 64 << 10

var (
	errLongEvent = permanent{fmt.Errorf("decode the subscription: an event is longer than %d bytes", maxEvent)}
	errEventUTF8 = permanent{errors.New("decode the subscription: invalid UTF-8")}
)

// decoder parses a text/event-stream as the HTML standard defines it, in bounded memory. It drops
// an event that is cut off by an error.
type decoder struct {
	r      *bufio.Reader
	skipLF bool // the last line ended with CR, so an LF that follows belongs to the same line end
	begun  bool // the first line was read
	line   []byte
	data   []byte
	id     string
	retry  time.Duration // value of the last retry field; 0 if there was none

	// A block is a group of lines that ends with an empty line. A block without data is no event,
	// but may set the id or the retry time. At the end of such a block, idle is set to true, and
	// the field at is set to the last id, at which a subscription can resume. The id of a block
	// with data counts only when the event is returned, because the event may be cut off before its
	// end.
	idle  bool
	at    string
	pause bool // return errPaused after the first block without data
}

var errPaused = errors.New("a block without data has ended")

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReaderSize(r, 32<<10)} }

// next returns the next event that has data.
func (d *decoder) next() (event, error) {
	if cap(d.data) > keep {
		d.data = nil
	}
	d.data = d.data[:0]
	var name string
	some := false
	for {
		line, err := d.readLine()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if some {
				return event{d.id, name, d.data[:len(d.data)-1]}, nil
			}
			name, d.idle, d.at = "", true, d.id
			if d.pause {
				d.pause = false
				return event{}, errPaused
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) { // a comment has an empty field name, which is ignored
		case "data":
			some = true
			if len(d.data)+len(value) > maxEvent {
				return event{}, errLongEvent
			}
			d.data = append(append(d.data, value...), '\n')
		case "event":
			name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				d.id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil && value[0] != '+' {
				d.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine returns a line without its line end, which is CR, LF or CRLF. It returns as soon as the
// line has ended: after a CR, readLine does not wait to see whether an LF follows.
func (d *decoder) readLine() ([]byte, error) {
	if cap(d.line) > keep {
		d.line = nil
	}
	d.line = d.line[:0]
	for {
		if d.r.Buffered() == 0 {
			if _, err := d.r.Peek(1); err != nil {
				return nil, err
			}
		}
		chunk, _ := d.r.Peek(d.r.Buffered())
		if d.skipLF {
			d.skipLF = false
			if chunk[0] == '\n' {
				d.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			end = len(chunk)
		}
		if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(d.line)+end > maxEvent+keep {
			return nil, errLongEvent
		}
		d.line = append(d.line, chunk[:end]...)
		if end == len(chunk) {
			d.r.Discard(end)
			continue
		}
		d.skipLF = chunk[end] == '\r'
		d.r.Discard(end + 1)
		if !utf8.Valid(d.line) {
			return nil, errEventUTF8
		}
		if !d.begun {
			d.begun = true
			return bytes.TrimPrefix(d.line, []byte("\ufeff")), nil
		}
		return d.line, nil
	}
}
