package h2

import (
	"strings"

	"golang.org/x/net/http2/hpack"
)

// Verdict says who has to serve a connection.
type Verdict int

// The verdicts.
const (
	Undecided Verdict = iota // no request has arrived completely
	Plain                    // the first request is plain, see the package comment
	Foreign                  // net/http has to serve the first request, or to refuse the connection
)

// HasPreface reports whether the preface begins with raw, or raw with the preface.
func HasPreface(raw []byte) bool {
	return len(raw) > 0 && strings.HasPrefix(Preface, string(raw[:min(len(raw), len(Preface))]))
}

// Look looks at what has arrived first on a connection.
func Look(raw []byte) Verdict {
	if len(raw) > 0 && !HasPreface(raw) {
		return Foreign
	}
	if len(raw) < len(Preface) {
		return Undecided
	}
	raw = raw[len(Preface):]
	for first := true; len(raw) >= frameHead; first = false {
		size := frameSize(raw)
		if size > frameHead+MaxFrame {
			return Foreign
		}
		if len(raw) < size {
			break
		}
		switch f := parse(raw); {
		case first && f.kind != kindSettings:
			return Foreign
		case f.kind == kindHeaders:
			return f.look()
		}
		raw = raw[size:]
	}
	return Undecided
}

// look decides about a connection whose first HEADERS frame is f.
func (f frame) look() Verdict {
	block, ok := f.request()
	if !ok || !f.has(flagEndHeaders) {
		return Foreign
	}
	var fields []hpack.HeaderField
	size := 0
	d := hpack.NewDecoder(tableSize, func(f hpack.HeaderField) {
		if size += int(f.Size()); size <= mostPlain {
			fields = append(fields, f)
		}
	})
	if _, err := d.Write(block); err != nil || size > mostPlain {
		return Foreign
	}
	if k, _ := learn(fields); k == nil || !f.has(flagEndStream) && k.length == "" {
		return Foreign
	}
	return Plain
}

// request returns the header block in a HEADERS frame.
func (f frame) request() (block []byte, ok bool) {
	if block, ok = f.unpad(); ok && f.has(flagPriority) {
		if ok = len(block) >= 5; ok {
			block = block[5:]
		}
	}
	return block, ok
}
