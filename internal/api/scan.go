package api

import (
	"sync"

	"weir"
)

// maxDepth is how deep a body may be nested, its outer object counted (D8).
const maxDepth = 1000

// scanner checks one JSON text strictly, as D8 wants it, in one pass and without building a value. Beside the body it
// needs a bit for every open array or object and a few bytes for every member name of the objects that are open.
//
// It is written by hand because it does three things at once that no library does together: it finds duplicate names
// at a bounded price (jsontext: 109 MiB for an object of 600,000 names; here 8 to 16 bytes a name), it counts the
// events, and it moves the events together in place while it reads. A fuzz test holds it against jsontext.
type scanner struct {
	buf   []byte
	pos   int // of the next byte to read
	depth int
	kinds [(maxDepth + 63) / 64]uint64 // a bit for every open value: set for an object
	names names

	// Of the array of events. Its bytes are kept without white space: what is read from run on goes to out, and as
	// long as nothing was left out, the two are the same and nothing is copied.
	found      bool
	keeping    bool
	start, end int
	run, out   int
	count      uint32
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// events checks the body of a publish and returns its array of events, without the white space between tokens but
// otherwise byte for byte, and how many they are. The result is a part of body, which is overwritten.
func events(body []byte) (payload []byte, count uint32, err error) {
	s := scanners.Get().(*scanner)
	s.reset(body)
	if err = s.scan(); err == nil && !s.found {
		err = badBody(`it has no array "events"`)
	}
	if err == nil {
		payload, count = body[s.start:s.end:s.end], s.count
	}
	s.reset(nil)
	scanners.Put(s)
	return payload, count, err
}

func (s *scanner) reset(body []byte) {
	names := s.names
	names.reset()
	*s = scanner{buf: body, names: names}
}

// what the scanner wants next.
type want uint8

const (
	wantValue want = iota
	wantName       // of a member, or its comma's successor
	wantMore       // a comma or the end of what is open
	wantEnd        // of the text
)

func (s *scanner) scan() error {
	if s.space() != '{' {
		return badBody("it is not a JSON object")
	}
	next := wantValue
	var err error
	for err == nil {
		switch next {
		case wantValue:
			next, err = s.value()
		case wantName:
			next, err = s.member()
		case wantMore:
			next, err = s.more()
		default:
			if s.space(); s.pos < len(s.buf) {
				return s.fault("something follows the object")
			}
			return nil
		}
	}
	return err
}

// space passes over white space and returns the byte after it, 0 at the end of the body (which no rule accepts).
func (s *scanner) space() byte {
	p := s.pos
	if p < len(s.buf) && s.buf[p] > ' ' {
		return s.buf[p]
	}
	for p < len(s.buf) && (s.buf[p] == ' ' || s.buf[p] == '\n' || s.buf[p] == '\t' || s.buf[p] == '\r') {
		p++
	}
	if s.keeping && p > s.pos {
		s.flush()
		s.run = p
	}
	s.pos = p
	if p < len(s.buf) {
		return s.buf[p]
	}
	return 0
}

// flush moves what was read since run to its place. The place is never ahead of what was read.
func (s *scanner) flush() {
	if s.out != s.run {
		copy(s.buf[s.out:], s.buf[s.run:s.pos])
	}
	s.out += s.pos - s.run
	s.run = s.pos
}

func (s *scanner) value() (want, error) {
	c := s.space()
	if s.keeping && s.depth == 2 {
		s.count++
	}
	var err error
	switch c {
	case '{':
		return s.open(true)
	case '[':
		return s.open(false)
	case '"':
		_, err = s.string()
	case 't':
		err = s.literal("true")
	case 'f':
		err = s.literal("false")
	case 'n':
		err = s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		err = s.number()
	default:
		err = s.fault("a value is missing")
	}
	return wantMore, err
}

// open begins an object or an array.
func (s *scanner) open(object bool) (want, error) {
	if s.depth == maxDepth {
		return 0, s.fault("it is nested deeper than 1,000 levels")
	}
	bit := uint64(1) << (s.depth & 63)
	if object {
		s.kinds[s.depth>>6] |= bit
		s.names.open()
	} else {
		s.kinds[s.depth>>6] &^= bit
	}
	s.depth++
	s.pos++
	switch c := s.space(); {
	case object && c == '}', !object && c == ']':
		return s.close(), nil
	case object:
		return wantName, nil
	}
	return wantValue, nil
}

// close ends the innermost object or array at the byte that was looked at.
func (s *scanner) close() want {
	s.pos++
	s.depth--
	if s.object(s.depth) {
		s.names.close()
	}
	switch {
	case s.depth == 0:
		return wantEnd
	case s.depth == 1 && s.keeping:
		s.flush()
		s.keeping, s.end = false, s.out
	}
	return wantMore
}

// object tells whether the open value at that depth is an object.
func (s *scanner) object(depth int) bool { return s.kinds[depth>>6]>>(depth&63)&1 == 1 }

func (s *scanner) more() (want, error) {
	object := s.object(s.depth - 1)
	switch c := s.space(); {
	case c == ',' && object:
		s.pos++
		return wantName, nil
	case c == ',':
		s.pos++
		return wantValue, nil
	case c == '}' && object, c == ']' && !object:
		return s.close(), nil
	}
	return 0, s.fault("a comma or the end of what was opened is missing")
}

// member reads a name and its colon. A name is remembered where it will stay: events are moved together as they are
// read, so a name among them is moved first.
func (s *scanner) member() (want, error) {
	if s.space() != '"' {
		return 0, s.fault("a member name is missing")
	}
	first := s.pos
	escaped, err := s.string()
	if err != nil {
		return 0, err
	}
	at := first
	if s.keeping && s.run != s.out {
		s.flush()
		at = s.out - (s.pos - first)
	}
	size := s.pos - first - 2
	if !s.names.add(s.buf, at+1, size, escaped) {
		s.pos = first
		return 0, s.fault("a member name is used twice in one object")
	}
	top := s.depth == 1 && string(s.names.last(s.buf)) == "events"
	if s.space() != ':' {
		return 0, s.fault("a colon is missing")
	}
	s.pos++
	if c := s.space(); top {
		if c != '[' {
			return 0, badBody(`"events" is not an array`)
		}
		s.found, s.keeping = true, true
		s.start, s.run, s.out = s.pos, s.pos, s.pos
	}
	return wantValue, nil
}

func (s *scanner) literal(word string) error {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		return s.fault("a value is missing")
	}
	s.pos += len(word)
	return nil
}

// number passes over a number in the grammar of RFC 8259: nothing is computed, so none is too large or too exact.
func (s *scanner) number() error {
	if s.buf[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fault("a digit is missing")
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.fault("a digit is missing")
		}
	}
	if s.pos < len(s.buf) && s.buf[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.buf) && (s.buf[s.pos] == '+' || s.buf[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.fault("a digit is missing")
		}
	}
	return nil
}

// digits passes over digits and tells whether there was one.
func (s *scanner) digits() bool {
	p := s.pos
	for p < len(s.buf) && s.buf[p]-'0' <= 9 {
		p++
	}
	some := p > s.pos
	s.pos = p
	return some
}

// fault describes what is wrong at the byte that is read.
func (s *scanner) fault(what string) error {
	if s.pos >= len(s.buf) {
		return badBody("it ends too early")
	}
	return weir.Errorf(weir.InvalidRequest, "the body is not acceptable JSON: %s, at byte %d", what, s.pos)
}

func badBody(what string) error {
	return &weir.Error{Code: weir.InvalidRequest, Message: "the body is not acceptable JSON: " + what}
}
