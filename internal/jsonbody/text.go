package jsonbody

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// string skips a string literal and reports whether the literal contains escapes. Both the literal
// and its decoded value must be valid UTF-8. So an escaped surrogate without its other half is
// refused (D8).
func (s *scanner) string() (escaped bool, err error) {
	buf, p := s.buf, s.pos+1
	for {
		n := plain(buf[p:])
		if p += n; n == longString {
			p += long(buf[p:])
			continue
		}
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
				return escaped, s.fault("invalid escape in a string")
			}
			escaped = true
			p += n
		case c < ' ':
			s.pos = p
			return escaped, s.fault("unescaped control character in a string")
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

// plain returns the number of bytes at the start of b that need no special treatment in a string:
// ASCII characters other than control characters, the quote and the backslash. It examines eight
// bytes at a time. It computes the variable marks, in which the high bit of each byte is set if
// that byte needs special treatment. The subtractions may also set the high bits of other bytes,
// because a byte can borrow from the next higher byte. But a byte that borrows always has its own
// high bit set. So the lowest bit that is set in marks is always correct, and plain uses only that
// bit. In a long string plain stops after longString bytes.
func plain(b []byte) int {
	b = b[:min(len(b), longString)]
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

// longString is the number of bytes after which the function long is faster than plain.
const longString = 64

// long does the same as plain for the rest of a long string. It examines 32 bytes at a time, and
// stops up to 31 bytes early.
func long(b []byte) int {
	n := 0
	for ; len(b)-n >= 32; n += 32 {
		part := b[n : n+32 : n+32]
		if special(part)|special(part[8:])|special(part[16:])|special(part[24:]) != 0 {
			break
		}
	}
	return n
}

// special returns a value other than 0 if one of the first eight bytes of b needs special treatment.
func special(b []byte) uint64 {
	w := binary.LittleEndian.Uint64(b)
	return (w | (w - low*' ') | (w ^ low*'"' - low) | (w ^ low*'\\' - low)) & high
}

// multibyte returns the number of bytes of the non-ASCII characters at the start of b, up to the
// first invalid one. It returns 0 if the first of them is not valid UTF-8.
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

// escape returns the number of bytes of the escape at the start of b, or 0 if the escape is
// invalid. An escaped surrogate pair counts as one escape.
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

// hex4 returns the value of the four hexadecimal digits at the start of b, or -1 if b does not
// start with four such digits.
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
