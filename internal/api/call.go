package api

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/hub"
)

// call is one request and its response. Calls are pooled: finish sets all fields to zero.
type call struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	route  route
	grant  *access.Grant // what the key may do; nil on routes that need no key
	window access.Window
	id     [requestIDLength]byte
	sent   bool   // the response has begun
	parked bool   // an event loop continues the response, and counts the call at its end
	zips   bool   // the subscription is compressed
	coding coding // the content coding of a visit's response; empty if it is not compressed
	read   bool   // the request body was read, or reading it failed; if false, linger may have to read it

	known     *hub.Stream // the result of the method stream; nil if the call has no stream yet
	cache     string      // value of cache-control; "no-store" if empty
	created   *weir.Time  // value of x-svc-stream-created (D39); nil unless the response is about a stream
	publisher string      // value of x-svc-publisher in an acknowledgement (D38); empty if the batch has no publisher

	// ended is closed when the caller loses the right to read. It is nil except in subscriptions.
	ended <-chan struct{}

	facts   *fieldFacts // what is known about the header fields; nil unless an event loop serves the request
	later   laterWriter // set if an event loop serves the request: see ServeLater
	ack     weir.Ack    // the outcome of a publish that an event loop has begun; valid if failure is nil
	failure error
	inLoop  bool         // the event loop calls Published
	waits   bool         // the call waits in a goroutine of its own, although an event loop began it
	resume  func() error // sends the outcome of a call that is not a publish; nil if there is none

	proposed hub.Publish // the publish that an endpoint proposes to the hub

	loan     *budget.Loan // memory borrowed for the body until the end of the call; nil if none was borrowed
	encoder  *budget.Loan // memory borrowed for the encoder of a compressed response; nil if there is none
	stored   bool         // a visit stored a batch; see Visit.Stored
	status   int          // HTTP status of the response
	fault    *fault       // the error that the request was refused with; nil if it was not refused
	message  string       // the message of that error, for the request log
	hints    string       // probable mistakes in the body, for the request log; empty if there are none
	received int64        // bytes of the request body that were read
	written  int64        // bytes of the response body; not counted for a subscription
}

var calls = sync.Pool{New: func() any { return new(call) }}

const requestIDLength = len("req_") + 16

// newRequestID returns an id of 95 random bits (D30). The bits come from the runtime's generator,
// which is per thread and needs neither a lock nor a system call. The generator is not a
// cryptographic one. It need not be, because a request id grants no access.
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

// noClient is passed instead of the client's address where the address is not needed. For example,
// a request with a key counts in the rate window of the key, and not in that of an address.
var noClient netip.Addr

// client returns the client's address, in whose rate window requests without a key count.
func (c *call) client() netip.Addr {
	return c.h.Access.ClientIP(c.r.RemoteAddr, c.r.Header["X-Forwarded-For"])
}

// peek reads the rate window of the client's address without counting the request. It is for
// requests that do not count: their responses have the rate limit header fields, like all others.
func (c *call) peek() { c.window = c.h.Access.Peek(nil, c.client()) }

// Constant header values, shared by all responses. Nothing may append to them.
var (
	noBuffering = []string{"no"}
	crossOrigin = []string{"cross-origin"}
	bearer      = []string{"Bearer"}

	gzipEncoding = []string{"gzip"}
	zstdEncoding = []string{"zstd"}
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// headWriter is implemented by response writers that accept header fields as text, in addition to
// those in their Header. This saves the handler the cost of filling a map, and the writer the cost of
// reading it. The handler appends complete lines to the buffer that BeginHead returns, and passes the
// result to EndHead. If one of the lines is the content type, the parameter typed is true.
type headWriter interface {
	BeginHead(status int) []byte
	EndHead(head []byte, typed bool)
}

// none as the length or cursor of a response means that the response has no length or cursor.
const none = -1

// head begins the response. Every response under /v1 goes through it. It sends the header fields
// that all responses have. It also sends the content type, the length, the cursor, c.created and
// c.publisher, each only if it is set.
func (c *call) head(status int, contentType string, length, cursor int64) {
	if c.allowOrigin() && c.route.kind == besideRoute {
		c.w.Header()["Access-Control-Expose-Headers"] = besideExposed
	}
	c.sent, c.status = true, status
	if length != none && !c.isHead() {
		c.written = length
	}
	if w, ok := c.w.(headWriter); ok { // it adds the length itself
		w.EndHead(c.appendFields(w.BeginHead(status), contentType, none, cursor), contentType != "")
		return
	}
	p := buffers.Get().(*[]byte)
	b := c.appendFields(*p, contentType, length, cursor)
	setFields(c.w.Header(), string(b))
	putBuffer(p, b)
	c.w.WriteHeader(status)
}

// appendFields appends the header fields of a response, with names in canonical form.
func (c *call) appendFields(b []byte, contentType string, length, cursor int64) []byte {
	b = append(b, "X-Request-Id: "...)
	b = append(b, c.id[:]...)
	b = appendNumber(b, "\r\nX-Ratelimit-Limit: ", int64(c.window.Limit))
	b = appendNumber(b, "\r\nX-Ratelimit-Remaining: ", int64(c.window.Remaining))
	b = appendNumber(b, "\r\nX-Ratelimit-Reset: ", c.window.Reset)
	b = append(b, "\r\nServer: svc\r\nX-Content-Type-Options: nosniff\r\n"...)
	b = appendLine(b, "Cache-Control: ", cmp.Or(c.cache, "no-store"))
	b = appendLine(b, "Content-Type: ", contentType)
	if c.created != nil {
		b = append(c.created.AppendFormat(append(b, weir.HeaderStreamCreated+": "...)), "\r\n"...)
	}
	b = appendLine(b, weir.HeaderPublisher+": ", c.publisher)
	if length != none {
		b = append(appendNumber(b, "Content-Length: ", length), "\r\n"...)
	}
	if cursor != none {
		b = append(appendNumber(b, "X-Svc-Cursor: ", cursor), "\r\n"...)
	}
	return b
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendLine appends a header field, unless the value is empty. With a line break, a value could
// inject another field, so appendLine replaces line breaks by spaces.
func appendLine(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	from := len(b)
	b = append(b, value...)
	for i := from; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

// setFields sets the header fields that appendFields has appended. All values are substrings of one
// string, and the slices for them are parts of one array.
func setFields(h http.Header, lines string) {
	values := make([]string, 0, 12)
	for len(lines) > 0 {
		var line string
		line, lines, _ = strings.Cut(lines, "\r\n")
		name, value, _ := strings.Cut(line, ": ")
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// answer sends a JSON body. It always returns nil.
func (c *call) answer(status int, body []byte) error {
	if status == http.StatusOK {
		if k := c.choose(len(body)); k != "" {
			c.sendPacked(k, typeJSON, body)
			return nil
		}
	}
	return c.answerAt(status, body, none)
}

// answerAt sends a JSON body, and the cursor in x-svc-cursor. It always returns nil.
func (c *call) answerAt(status int, body []byte, cursor int64) error {
	c.head(status, typeJSON, int64(len(body)), cursor)
	c.writeLong(body)
	return nil
}

// buffers is a pool of buffers in which responses are encoded.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// maxPooled is the capacity of the largest buffer that returns to the pool. Without this limit, the
// buffer of one large response would stay allocated.
const maxPooled = 64 << 10

func putBuffer(p *[]byte, b []byte) {
	if cap(b) <= maxPooled {
		*p = b[:0]
		buffers.Put(p)
	}
}
