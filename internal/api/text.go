package api

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// string passes over a string literal and tells whether it holds escapes. It must be valid UTF-8, and so must what it
// stands for: an escaped half of a surrogate pair without the other half is refused (D8).
func (s *scanner) string() (escaped bool, err error) {
	buf, p := s.buf, s.pos+1
	for {
		p += plain(buf[p:])
		if p >= len(buf) {
			s.pos = len(buf)
			return escaped, s.fault("")
		}
		switch c := buf[p]; {
		case c == '"':
			s.pos = p + 1
			return escaped, nil
		case c == '\\':
			n := escape(buf[p:])
			if n == 0 {
				s.pos = p
				return escaped, s.fault("a wrong escape in a string")
			}
			escaped = true
			p += n
		case c < ' ':
			s.pos = p
			return escaped, s.fault("a control character in a string")
		default:
			n := multibyte(buf[p:])
			if n == 0 {
				s.pos = p
				return escaped, s.fault("invalid UTF-8 in a string")
			}
			p += n
		}
	}
}

const (
	low  = 0x0101010101010101
	high = 0x8080808080808080
)

// plain is the number of bytes at the start of b that are ASCII and mean themselves in a string. Eight are looked at
// at a time: a byte with the high bit set, below the space, or equal to one of the two special ones leaves a mark, and
// the lowest mark is exact, because a subtraction borrows from above only where it leaves one.
func plain(b []byte) int {
	n := 0
	for len(b)-n >= 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^low*'"', w^low*'\\'
		if marks := (w | (w - low*' ') | (quote - low) | (slash - low)) & high; marks != 0 {
			return n + bits.TrailingZeros64(marks)>>3
		}
		n += 8
	}
	for n < len(b) && b[n]-' ' < 0x80-' ' && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// multibyte is the length of the runes outside of ASCII at the start of b, 0 when the first is not valid UTF-8.
func multibyte(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			if n == 0 {
				return 0
			}
			return n
		}
		n += size
	}
	return n
}

// escape is the length of the escape at the start of b, of a whole surrogate pair where it is one, and 0 when it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r := hex4(b[2:])
		switch {
		case r < 0 || 0xDC00 <= r && r <= 0xDFFF:
			return 0
		case r < 0xD800 || r > 0xDFFF:
			return 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if l := hex4(b[8:]); 0xDC00 <= l && l <= 0xDFFF {
				return 12
			}
		}
	}
	return 0
}

// hex4 is the value of four hexadecimal digits, -1 when they are not.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		r <<= 4
		switch {
		case '0' <= c && c <= '9':
			r |= rune(c - '0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r |= rune(c|0x20-'a') + 10
		default:
			return -1
		}
	}
	return r
}
