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

// The array of events inside of the body of a publish.
const bodyStart, bodyEnd = `{"events":[`, `]}`

// Payload is what one publish carries: [Events] for a json stream, [Bytes] for a raw one.
type Payload struct {
	contentType string
	body        []byte
	err         error
}

// Events is a batch of a json stream. Each event is what [json.Marshal] makes of it, and a [json.RawMessage] is taken as it
// is. What cannot be an event is reported by the publish.
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

// Bytes is a batch of a raw stream.
func Bytes(b []byte) Payload { return Payload{contentType: typeBytes, body: b} }

// check refuses what the service would.
func (p *Payload) check() error {
	if p.err == nil && len(p.body) > weir.MaxBody {
		return tooLarge(len(p.body))
	}
	return p.err
}

func tooLarge(n int) error {
	return weir.Errorf(weir.PayloadTooLarge, "a batch of %d bytes: the most that one may have is %d", n, weir.MaxBody)
}

// What the service refuses beyond the grammar of JSON.
var (
	errUTF8      = errors.New("invalid UTF-8")
	errSurrogate = errors.New("half a surrogate pair in a string")
	errTwice     = errors.New("a member name is used twice in one object")
	errDepth     = errors.New("nested too deep")
)

// maxEventDepth leaves room for the object and the array around an event; all together it may be 1,000 levels.
const maxEventDepth = 998

// Event is the JSON of an event as the service keeps it: without white space between tokens. It refuses what the service
// would refuse, so that one bad event does not take others with it.
func Event(event any) (json.RawMessage, error) {
	raw, ok := event.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(event); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	b.Grow(len(raw))
	if err := json.Compact(&b, raw); err != nil {
		return nil, err
	}
	if err := checkEvent(b.Bytes()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// checkEvent looks at what the grammar, which must hold already, does not say.
func checkEvent(b []byte) error {
	if !utf8.Valid(b) {
		return errUTF8
	}
	var open []map[string]bool // for every open value the names that it has; nil for an array
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

// twice adds a name to those of an object and tells whether it was there, however it is spelled.
func twice(names map[string]bool, literal []byte) bool {
	name := string(literal[1 : len(literal)-1])
	if bytes.IndexByte(literal, '\\') >= 0 {
		_ = json.Unmarshal(literal, &name) // valid, or the grammar had failed
	}
	was := names[name]
	names[name] = true
	return was
}

// loneSurrogate tells whether a valid string literal has an escaped half of a pair without the other half.
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

// hex4 is the value of four hexadecimal digits, which must be some.
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
