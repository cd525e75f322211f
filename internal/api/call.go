package api

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

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
	sent   bool // the answer has begun
	read   bool // the body was read, as far as it will be

	lender   *budget.Budget
	held     int64 // of its memory, until the end of the call
	status   int   // of the answer
	received int64 // bytes of the body
	written  int64 // bytes of the answer's body, but of a subscription
}

var calls = sync.Pool{New: func() any { return new(call) }}

const requestIDLength = len("req_") + 16

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newRequestID makes an id of 95 random bits (D30). They come from the runtime's own generator, which every thread has
// to itself: no lock and no system call. Nobody is let in by a request id, so that is random enough.
func newRequestID() (id [requestIDLength]byte) {
	copy(id[:], "req_")
	for i := len("req_"); i < len(id); i += 8 {
		for j, v := 0, rand.Uint64(); j < 8; j++ {
			id[i+j] = base62[v%62]
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
	noStore     = []string{"no-store"}
	serverName  = []string{"svc"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{"application/json"}
	typeStream  = []string{"text/event-stream"}
	noBuffering = []string{"no"}
	bearer      = []string{"Bearer"}
)

// What head is told about a length or a cursor that the answer does not have.
const none = -1

// head sets the universal header fields, and begins the answer (with its content type, length and x-svc-cursor, where it
// has them). Every answer under /v1 goes through here. All values that differ from answer to answer are one string.
func (c *call) head(status int, contentType []string, length, cursor int64) {
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
	values := new([6]string)
	h := c.w.Header()
	begin := 0
	for i, end := range ends {
		values[i] = text[begin:end]
		begin = end
	}
	h["X-Request-Id"] = values[0:1:1]
	h["X-Ratelimit-Limit"] = values[1:2:2]
	h["X-Ratelimit-Remaining"] = values[2:3:3]
	h["X-Ratelimit-Reset"] = values[3:4:4]
	h["Cache-Control"] = noStore
	h["Server"] = serverName
	h["X-Content-Type-Options"] = noSniff
	if contentType != nil {
		h["Content-Type"] = contentType
	}
	if length != none {
		h["Content-Length"] = values[4:5:5]
	}
	if cursor != none {
		h["X-Svc-Cursor"] = values[5:6:6]
	}
	c.h.cors.allow(c.r, h)
	c.sent, c.status = true, status
	if length != none && !c.isHead() {
		c.written = length
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
