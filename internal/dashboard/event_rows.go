package dashboard

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir"
)

// eventRow is an event in the list of the event browser.
type eventRow struct {
	Seq    weir.Seq  `json:"seq"`
	Event  int       `json:"event"`  // index in the batch
	Events uint32    `json:"events"` // number of events in the batch
	Time   weir.Time `json:"time"`
	Size   int       `json:"size"` // bytes of the event
	Text   string    `json:"text"` // the first characters, or the first bytes in hex
	Hex    bool      `json:"hex,omitempty"`
	Cut    bool      `json:"cut,omitempty"`  // the event is longer than Text
	Type   string    `json:"type,omitempty"` // content type of a raw batch
}

// newRow returns the row of an event.
func newRow(mode weir.Mode, b *weir.Batch, i int, event []byte) eventRow {
	r := eventRow{Seq: b.Seq, Event: i, Events: b.Events, Time: b.Time, Size: len(event), Type: b.ContentType}
	text := event[:min(len(event), rowText)]
	if len(event) > rowText { // do not cut a character in half
		for n := 0; n < utf8.UTFMax && !utf8.Valid(text); n++ {
			text = text[:len(text)-1]
		}
	}
	if r.Hex = mode == weir.Raw && !isText(text); r.Hex {
		text = event[:min(len(event), rowTextHex)]
		r.Text = strings.TrimSpace(hexPairs(text))
	} else {
		r.Text = string(text)
	}
	r.Cut = len(text) < len(event)
	return r
}

// isText reports whether bytes can be shown as text.
func isText(b []byte) bool {
	return utf8.Valid(b) && bytes.IndexFunc(b, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) < 0
}

// hexPairs returns bytes as pairs of hex digits, with a space after each.
func hexPairs(b []byte) string {
	var out []byte
	for _, c := range b {
		out = append(hex.AppendEncode(out, []byte{c}), ' ')
	}
	return string(out)
}

// eachEvent calls visit for each event of a payload, with its index and its range of bytes, until
// visit returns false. The payload of a json stream is an array, which was checked before it was
// stored. The payload of a raw stream is one event.
func eachEvent(mode weir.Mode, payload []byte, visit func(i, from, to int) bool) {
	if mode == weir.Raw {
		visit(0, 0, len(payload))
		return
	}
	depth, start, i := 0, -1, 0
	for at := 0; at < len(payload); at++ {
		c := payload[at]
		if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			continue
		}
		if ends := depth == 1 && (c == ',' || c == ']'); ends {
			if start >= 0 && !visit(i, start, start+len(bytes.TrimRight(payload[start:at], " \n\t\r"))) {
				return
			}
			start = -1
			i++
			continue
		}
		if depth >= 1 && start < 0 {
			start = at
		}
		switch c {
		case '"':
			at = stringEnd(payload, at+1)
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
	}
}

// stringEnd returns the index of the quote that ends a JSON string. The search starts at the index
// at, which must be inside the string.
func stringEnd(b []byte, at int) int {
	for {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return len(b)
		}
		at += n
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		at++
	}
}

// fold appends b to the buffer, and changes the letters A to Z to lower case. Searches ignore the
// case of these letters only, because folding all of Unicode would take many times as long.
func fold(buffer, b []byte) []byte {
	buffer = append(buffer, b...)
	for i, c := range buffer {
		if 'A' <= c && c <= 'Z' {
			buffer[i] = c | 0x20
		}
	}
	return buffer
}
