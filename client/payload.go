package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"weir"
)

const (
	typeJSON  = "application/json"
	typeBytes = "application/octet-stream"
)

// The parts of the body of a publish before and after the events.
const bodyStart, bodyEnd = `{"events":[`, `]}`

// Payload is the content of a batch. Create it with [Events] for a json stream and with [Bytes] for
// a raw stream.
type Payload struct {
	contentType string
	body        []byte
	err         error
}

// Events returns a batch for a json stream. It encodes each event with [Event]. If an event is
// invalid, the call that publishes the batch returns the error.
func Events(events ...any) Payload {
	p := Payload{contentType: typeJSON, body: []byte(bodyStart)}
	for i, event := range events {
		b, err := Event(event)
		if err != nil {
			return Payload{err: fmt.Errorf("event %d: %w", i, err)}
		}
		if i > 0 {
			p.body = append(p.body, ',')
		}
		p.body = append(p.body, b...)
	}
	p.body = append(p.body, bodyEnd...)
	return p
}

// Bytes returns a batch for a raw stream. It does not copy b.
func Bytes(b []byte) Payload { return Payload{contentType: typeBytes, body: b} }

// check returns an error if the service would refuse the payload, whatever the stream.
func (p *Payload) check() error {
	if p.err == nil && len(p.body) > weir.MaxBody {
		return tooLarge(len(p.body))
	}
	return p.err
}

func tooLarge(n int) error {
	return weir.Errorf(weir.PayloadTooLarge, "the batch is %d bytes; the limit is %d", n, weir.MaxBody)
}

// Errors for JSON that is well-formed but that the service refuses.
var (
	errUTF8      = errors.New("invalid UTF-8")
	errSurrogate = errors.New("a string contains half a surrogate pair")
	errTwice     = errors.New("a member name is used twice in one object")
	errDepth     = fmt.Errorf("the event is nested more than %d levels deep", maxEventDepth)
)

// maxEventDepth is the 1,000 levels of a body, minus the object and the array around the events.
const maxEventDepth = 998

// Event encodes an event as the service stores it: as JSON, without white space between tokens. A
// [json.RawMessage] is compacted, and any other value is encoded with [json.Marshal]. Event returns
// an error if the service would refuse the event. A program that encodes events with Event learns
// of an invalid event before the service refuses the whole batch.
func Event(event any) (json.RawMessage, error) {
	raw, ok := event.(json.RawMessage)
	if ok {
		var b bytes.Buffer
		b.Grow(len(raw))
		if err := json.Compact(&b, raw); err != nil {
			return nil, err
		}
		raw = b.Bytes()
	} else {
		var err error
		if raw, err = json.Marshal(event); err != nil { // the result has no white space between tokens
			return nil, err
		}
	}
	if err := checkEvent(raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// checkEvent checks the rules of the service that go beyond the grammar of JSON. b must be valid
// JSON.
func checkEvent(b []byte) error {
	if !utf8.Valid(b) {
		return errUTF8
	}
	var open []map[string]bool // the member names of each object that is not closed yet; nil for an array
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open = append(open, map[string]bool{})
		case '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			end := stringEnd(b, i)
			literal := b[i:end]
			if loneSurrogate(literal) {
				return errSurrogate
			}
			if end < len(b) && b[end] == ':' {
				if twice(open[len(open)-1], literal) {
					return errTwice
				}
			}
			i = end - 1
		}
		if len(open) > maxEventDepth {
			return errDepth
		}
	}
	return nil
}

// twice adds a member name to the names of its object. It reports whether the object already has
// this name. It compares names after decoding their escapes.
func twice(names map[string]bool, literal []byte) bool {
	name := string(literal[1 : len(literal)-1])
	if bytes.IndexByte(literal, '\\') >= 0 {
		_ = json.Unmarshal(literal, &name) // cannot fail: the grammar was checked
	}
	was := names[name]
	names[name] = true
	return was
}

// loneSurrogate reports whether a valid string literal contains an escaped surrogate without its
// other half.
func loneSurrogate(literal []byte) bool {
	for i := bytes.IndexByte(literal, '\\'); i >= 0 && i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++
		if literal[i] != 'u' {
			continue
		}
		switch unit := hex4(literal[i+1:]); {
		case 0xdc00 <= unit && unit <= 0xdfff:
			return true
		case 0xd800 <= unit && unit <= 0xdbff:
			rest := literal[i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return true
			}
			if low := hex4(rest[2:]); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 6
		}
		i += 4
	}
	return false
}

// hex4 returns the value of four hexadecimal digits. The grammar guarantees that there are four.
func hex4(b []byte) (unit rune) {
	for _, c := range b[:4] {
		unit <<= 4
		if c <= '9' {
			unit |= rune(c - '0')
		} else {
			unit |= rune(c|0x20-'a') + 10
		}
	}
	return unit
}
