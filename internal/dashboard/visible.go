package dashboard

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// visible replaces some characters of a page by their number, such as [U+202E]: those that are
// invisible, or change the direction of the text around them. Streams, keys and projects can have
// such characters in their names. Without visible, a name with the character U+202E would be shown
// backwards, together with the text after it, and could look like another name. All pages go
// through visible as a whole, so no template can forget it. The replacement has no special meaning
// in HTML. The file value.js does the same for events. A form with such a name shows the
// replacement, and stores it when the form is sent.
func visible(text []byte) []byte {
	if !bytes.ContainsFunc(text, isUnseen) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if isUnseen(r) {
			out = fmt.Appendf(out, "[U+%04X]", r)
		} else {
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// isUnseen reports whether visible replaces a character. It keeps the joiners U+200C and U+200D,
// which some languages and emojis need.
func isUnseen(r rune) bool {
	switch {
	case r < 0x7f:
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	case r == 0x200c || r == 0x200d:
		return false
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}
