package api

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
)

// call is one request and its answer.
type call struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	route  route
	grant  *access.Grant // who asks; nil where no key is needed
	window access.Window
	id     [requestIDLength]byte
	fields [10][2]string // of the answer, while it is begun
	sent   bool          // the answer has begun
	read   bool          // the body was read, as far as it will be

	ended <-chan struct{} // closed when the caller's right to read is over; of a subscription

	lender   *budget.Budget
	held     int64  // of its memory, until the end of the call
	status   int    // of the answer
	fault    *fault // of a refusal
	received int64  // bytes of the body
	written  int64  // bytes of the answer's body, but of a subscription
}

var calls = sync.Pool{New: func() any { return new(call) }}

const requestIDLength = len("req_") + 16

// newRequestID makes an id of 95 random bits (D30). They come from the runtime's own generator, which every thread has
// to itself: no lock and no system call. Nobody is let in by a request id, so that is random enough.
func newRequestID() (id [requestIDLength]byte) {
	copy(id[:], "req_")
	for i := len("req_"); i < len(id); i += 8 {
		for j, v := 0, rand.Uint64(); j < 8; j++ {
			id[i+j] = weir.Base62Alphabet[v%62]
			v /= 62
		}
	}
	return id
}

// noClient is for callers who are counted by their key.
var noClient netip.Addr

// client is the address that the request counts under.
func (c *call) client() netip.Addr {
	return c.h.Access.ClientIP(c.r.RemoteAddr, c.r.Header["X-Forwarded-For"])
}

// peek learns the window of whoever has no key without counting, for answers that count for nobody.
func (c *call) peek() { c.window = c.h.Access.Peek(nil, c.client()) }

// Header values that never change are made once and shared by all answers; nobody appends to them.
var (
	noBuffering = []string{"no"}
	bearer      = []string{"Bearer"}
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// fieldWriter is an http.ResponseWriter that takes a status and header fields (names in canonical form, and values) as a list.
// It sends them beside what is in its Header, and spares both sides a map that nobody looks anything up in.
type fieldWriter interface {
	WriteFields(status int, fields [][2]string)
}

// What head is told about a length or a cursor that the answer does not have.
const none = -1

// head sets the universal header fields, and begins the answer (with its content type, length and x-svc-cursor, where it
// has them). Every answer under /v1 goes through here. All values that differ from answer to answer are one string.
func (c *call) head(status int, contentType string, length, cursor int64) {
	var room [96]byte
	b := append(room[:0], c.id[:]...)
	var ends [6]int
	ends[0] = len(b)
	for i, v := range [...]int64{int64(c.window.Limit), int64(c.window.Remaining), c.window.Reset, length, cursor} {
		if v != none {
			b = strconv.AppendInt(b, v, 10)
		}
		ends[i+1] = len(b)
	}
	text := string(b)
	value := func(i int) string { return text[ends[i]:ends[i+1]] }
	fields := append(c.fields[:0],
		[2]string{"X-Request-Id", text[:ends[0]]}, [2]string{"X-Ratelimit-Limit", value(0)}, [2]string{"X-Ratelimit-Remaining", value(1)},
		[2]string{"X-Ratelimit-Reset", value(2)}, [2]string{"Cache-Control", "no-store"}, [2]string{"Server", "svc"},
		[2]string{"X-Content-Type-Options", "nosniff"})
	if contentType != "" {
		fields = append(fields, [2]string{"Content-Type", contentType})
	}
	if length != none {
		fields = append(fields, [2]string{"Content-Length", value(3)})
	}
	if cursor != none {
		fields = append(fields, [2]string{"X-Svc-Cursor", value(4)})
	}
	c.h.cors.allow(c.r, c.w.Header())
	c.sent, c.status = true, status
	if length != none && !c.isHead() {
		c.written = length
	}
	c.writeHead(status, fields)
}

func (c *call) writeHead(status int, fields [][2]string) {
	if w, ok := c.w.(fieldWriter); ok {
		w.WriteFields(status, fields)
		return
	}
	h, values := c.w.Header(), make([]string, len(fields))
	for i, f := range fields {
		values[i] = f[1]
		h[f[0]] = values[i : i+1 : i+1]
	}
	c.w.WriteHeader(status)
}

// answer sends a JSON body.
func (c *call) answer(status int, body []byte) error { return c.answerAt(status, body, none) }

// answerAt sends a JSON body, and the cursor beside it.
func (c *call) answerAt(status int, body []byte, cursor int64) error {
	c.head(status, typeJSON, int64(len(body)), cursor)
	c.writeLong(body)
	return nil
}

// buffers hold answers while they are made.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// maxPooled keeps one large answer from holding its memory for ever.
const maxPooled = 64 << 10

func putBuffer(p *[]byte, b []byte) {
	if cap(b) <= maxPooled {
		*p = b[:0]
		buffers.Put(p)
	}
}
