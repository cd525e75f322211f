package h2

// encoder compresses the header fields of responses (HPACK, RFC 7541). Most fields of most responses
// have the same values. So the encoder adds a field to the table of the client when the field occurs
// for the first time, and never removes one. A field with another value then refers only to the name.
//
// The encoder does not use the one of golang.org/x/net, which adds every new value to the table, so
// that values such as dates and sequence numbers displace the fields that stay the same.
type encoder struct {
	known  map[string]field // by name, as the handler has written it
	count  int              // number of fields in the table
	room   int              // size that is left in the table
	resize bool             // the next header block must say that the table is not used any more
}

// field is what the encoder knows about a header field with a certain name.
type field struct {
	name  int    // index of a field with this name in the fixed table; 0 if there is none
	entry int    // number of the entry in the table; 0 if there is none
	value string // value of that entry
}

func newEncoder() *encoder { return &encoder{known: make(map[string]field), room: tableSize} }

// limit is called when the client sets the size of its table.
func (e *encoder) limit(size uint32) {
	if size < tableSize && e.room >= 0 {
		clear(e.known)
		e.count, e.room, e.resize = 0, -1, true
	}
}

// begin begins a header block.
func (e *encoder) begin(b []byte) []byte {
	if e.resize {
		e.resize = false
		return append(b, 0x20) // a table of size 0
	}
	return b
}

// append appends a field. The parameter changes says that the next response probably has another
// value, so that the field is not worth an entry.
func (e *encoder) append(b, name, value []byte, changes, secret bool) []byte {
	f, ok := e.known[string(name)]
	if !ok {
		f = field{name: fixed[lower(name)]}
		if len(e.known) < mostKnown {
			e.known[string(name)] = f
		}
	}
	if f.entry > 0 && f.value == string(value) && !secret {
		return appendInt(b, 0x80, 7, e.index(f))
	}
	form, bits := byte(0), 4 // a value that is not added to the table
	size := len(name) + len(value) + 32
	switch {
	case secret:
		form = 0x10 // a proxy must not add it to a table either
	case !changes && f.entry == 0 && size <= e.room && len(e.known) < mostKnown:
		form, bits = 0x40, 6
	}
	switch {
	case f.entry > 0:
		b = appendInt(b, form, bits, e.index(f))
	case f.name > 0:
		b = appendInt(b, form, bits, f.name)
	default:
		b = appendInt(b, form, bits, 0)
		b = appendInt(b, 0, 7, len(name))
		for _, c := range name {
			b = append(b, lowered(c))
		}
	}
	if form == 0x40 {
		e.room -= size
		e.count++
		f.entry, f.value = e.count, string(value)
		e.known[string(name)] = f
	}
	return append(appendInt(b, 0, 7, len(value)), value...)
}

// mostKnown limits the number of names that the encoder remembers.
const mostKnown = 128

// index returns the index of an entry. The newest entry has the lowest one.
func (e *encoder) index(f field) int { return len(fixedNames) + 1 + e.count - f.entry }

// status appends the status of a response.
func (e *encoder) status(b []byte, status int) []byte {
	for i, s := range fixedStatuses {
		if s == status {
			return append(b, 0x80|byte(8+i))
		}
	}
	digits := [3]byte{'0' + byte(status/100%10), '0' + byte(status/10%10), '0' + byte(status%10)}
	return e.append(b, statusName, digits[:], false, false)
}

var statusName = []byte(":status")

// appendInt appends a number whose first bits share a byte with the form.
func appendInt(b []byte, form byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, form|byte(n))
	}
	b = append(b, form|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, 0x80|byte(n))
	}
	return append(b, byte(n))
}

func lowered(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func lower(name []byte) string {
	l := make([]byte, len(name))
	for i, c := range name {
		l[i] = lowered(c)
	}
	return string(l)
}

// fixedStatuses are the statuses in the fixed table, from index 8 on.
var fixedStatuses = [...]int{200, 204, 206, 304, 400, 404, 500}

// fixedNames are the names in the fixed table (RFC 7541, appendix A), from index 1 on.
var fixedNames = [...]string{
	":authority", ":method", ":method", ":path", ":path", ":scheme", ":scheme", ":status", ":status", ":status", ":status",
	":status", ":status", ":status", "accept-charset", "accept-encoding", "accept-language", "accept-ranges", "accept",
	"access-control-allow-origin", "age", "allow", "authorization", "cache-control", "content-disposition", "content-encoding",
	"content-language", "content-length", "content-location", "content-range", "content-type", "cookie", "date", "etag",
	"expect", "expires", "from", "host", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since",
	"last-modified", "link", "location", "max-forwards", "proxy-authenticate", "proxy-authorization", "range", "referer",
	"refresh", "retry-after", "server", "set-cookie", "strict-transport-security", "transfer-encoding", "user-agent", "vary",
	"via", "www-authenticate",
}

// fixed has the lowest index of each name in the fixed table.
var fixed = func() map[string]int {
	m := make(map[string]int, len(fixedNames))
	for i, name := range fixedNames {
		if m[name] == 0 {
			m[name] = i + 1
		}
	}
	return m
}()
