// Package jsonbody checks the JSON bodies of publishes, in one pass and in bounded memory, and finds
// the events in them.
package jsonbody

import (
	"sync"

	"weir"
)

// maxDepth is the largest nesting depth of a body. The outer object counts as the first level (D8).
const maxDepth = 1000

// scanner checks the JSON body of a publish strictly, as D8 requires. It needs one pass and does
// not build a value in memory. Besides the body, the scanner needs one bit for every open array or
// object, and a few bytes for every member name of the open objects.
//
// It is written by hand because no library does all of this: find duplicate names in bounded
// memory, count the events, and remove the white space between tokens in place. For an object of
// 600,000 names, jsontext needs 109 MiB, and this scanner about 9 MiB. A fuzz test compares the
// scanner with jsontext.
type scanner struct {
	buf   []byte
	pos   int                          // position of the next byte to read
	depth int                          // number of open arrays and objects
	base  int                          // depth at the start and at the end of the value to check
	kinds [(maxDepth + 63) / 64]uint64 // one bit per open array or object: 1 for an object
	names nameSet

	// The scanner removes the white space from the array of events in place: the method flush moves
	// the bytes between run and pos to out. Until the first white space, run and out are equal and
	// nothing is copied.
	found      bool // the body has a member "events"
	keeping    bool // pos is inside the array of events
	start, end int  // start and end of the compacted array
	run, out   int
	count      uint32 // number of events
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// Events checks the body of a publish to a json stream (D8). It returns the array of events, without
// the white space between its tokens but otherwise unchanged, and the number of events. It overwrites
// body, and the array may share the memory of body.
func Events(body []byte) (payload []byte, count uint32, err error) {
	s := scanners.Get().(*scanner)
	s.reset(body)
	if err = s.scan(); err == nil && !s.found {
		err = Fault(`the array "events" is missing; send {"events":[...]}`)
	}
	if err == nil {
		payload, count = Compact(body[s.start:s.end:s.end], body), s.count
	}
	s.reset(nil)
	scanners.Put(s)
	return payload, count, err
}

// Messages checks a JSON value by the rules for the events of a publish. If the value is an array,
// Messages returns it. Otherwise it returns an array with the value as its only element. It also
// returns the number of elements. The nesting depth counts as if the array was the array of events
// of a publish. Like Events, it overwrites body.
func Messages(body []byte) (array []byte, count uint32, err error) {
	s := scanners.Get().(*scanner)
	s.reset(body)
	isArray := s.space() == '['
	if s.base = 2; isArray {
		s.base = 1
	}
	s.depth, s.keeping = s.base, true
	s.start, s.run, s.out = s.pos, s.pos, s.pos
	if err = s.check(); err == nil {
		if s.keeping { // the value is not an array, so the method close has not set s.end
			s.flush()
			s.end = s.out
		}
		array, count = body[s.start:s.end:s.end], s.count
	}
	s.reset(nil)
	scanners.Put(s)
	switch {
	case err != nil:
		return nil, 0, err
	case isArray:
		return Compact(array, body), count, nil
	}
	whole := make([]byte, 0, len(array)+2)
	return append(append(append(whole, '['), array...), ']'), count, nil
}

func (s *scanner) reset(body []byte) {
	names := s.names
	names.reset()
	*s = scanner{buf: body, names: names}
}

// want is the kind of token that the scanner expects next.
type want uint8

const (
	wantValue want = iota
	wantName       // a member name
	wantMore       // a comma, or the end of the innermost array or object
	wantEnd        // the end of the body
)

func (s *scanner) scan() error {
	if s.space() != '{' {
		return Fault(`it is not a JSON object; send {"events":[...]}`)
	}
	return s.check()
}

// check checks the value at pos, and that nothing follows it.
func (s *scanner) check() error {
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
				return s.fault("unexpected data after the JSON value")
			}
			return nil
		}
	}
	return err
}

// space skips white space and returns the byte after the white space, without skipping that byte.
// At the end of the body it returns 0, which is not valid anywhere in JSON.
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

// flush moves the bytes between run and pos to out. It never overwrites unread bytes, because out
// is never above run.
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
		err = s.fault("a JSON value is expected")
	}
	return s.afterValue(), err
}

// afterValue returns what is expected after the end of a value.
func (s *scanner) afterValue() want {
	if s.depth == s.base {
		return wantEnd
	}
	return wantMore
}

// open enters an object or an array, whose opening bracket is at pos.
func (s *scanner) open(object bool) (want, error) {
	if s.depth == maxDepth {
		return 0, s.fault("it is nested more than 1,000 levels deep")
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

// close leaves the innermost object or array, whose closing bracket is at pos.
func (s *scanner) close() want {
	s.pos++
	s.depth--
	if s.object(s.depth) {
		s.names.close()
	}
	if s.depth == 1 && s.keeping {
		s.flush()
		s.keeping, s.end = false, s.out
	}
	return s.afterValue()
}

// object reports whether the open value at this depth is an object.
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
	return 0, s.fault("a comma or a closing bracket is expected")
}

// member reads a member name and its colon. The field s.names stores the position of each name in
// the body, but removing white space moves bytes. So member first moves a name inside the events to
// its final position.
func (s *scanner) member() (want, error) {
	if s.space() != '"' {
		return 0, s.fault("a member name in double quotes is expected")
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
		return 0, s.fault("a colon is expected after the member name")
	}
	s.pos++
	if c := s.space(); top {
		if c != '[' {
			return 0, Fault(`"events" is not an array; send {"events":[...]}`)
		}
		s.found, s.keeping = true, true
		s.start, s.run, s.out = s.pos, s.pos, s.pos
	}
	return wantValue, nil
}

func (s *scanner) literal(word string) error {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		return s.fault("a JSON value is expected")
	}
	s.pos += len(word)
	return nil
}

// number skips a number that follows the grammar of RFC 8259. It does not compute the value, so no
// number is too large or too precise.
func (s *scanner) number() error {
	if s.buf[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fault("a digit is expected")
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.fault("a digit is expected")
		}
	}
	if s.pos < len(s.buf) && s.buf[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.buf) && (s.buf[s.pos] == '+' || s.buf[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.fault("a digit is expected")
		}
	}
	return nil
}

// digits skips digits and reports whether there was at least one.
func (s *scanner) digits() bool {
	p := s.pos
	for p < len(s.buf) && s.buf[p]-'0' <= 9 {
		p++
	}
	some := p > s.pos
	s.pos = p
	return some
}

// fault returns an error that names the position, counted from 0, and what is wrong there. At the
// end of the body it ignores its argument, because there the fault is always that the body ends too
// early.
func (s *scanner) fault(what string) error {
	if s.pos >= len(s.buf) {
		unit := "bytes"
		if len(s.buf) == 1 {
			unit = "byte"
		}
		return weir.Errorf(weir.InvalidRequest, "invalid body: the JSON ends too early, after %d %s", len(s.buf), unit)
	}
	return weir.Errorf(weir.InvalidRequest, "invalid body: %s, at byte %d", what, s.pos)
}

// Fault returns the error that refuses a body. Its argument says what is wrong with the body.
func Fault(what string) error {
	return &weir.Error{Code: weir.InvalidRequest, Message: "invalid body: " + what}
}

// Compact returns a part of a buffer. If the part is much smaller than the buffer, Compact returns a
// copy of it, because a batch may stay in memory for its subscribers. Without the copy, the whole
// buffer would stay in memory too.
func Compact(part, buffer []byte) []byte {
	if IsMuchSmaller(part, buffer) {
		return append(make([]byte, 0, len(part)), part...)
	}
	return part
}

// IsMuchSmaller reports whether the rest of the buffer, outside the part, is larger than the part by
// at least 256 bytes. If the rest is smaller, copying the part would cost more than it saves.
func IsMuchSmaller(part, buffer []byte) bool { return 2*len(part)+256 <= cap(buffer) }
