// Package api is the contract: everything under /v1 on net/http. It turns
// requests into nouns and nouns into answers; what is true about streams is the hub's to say, and who may is access's.
// Each endpoint is a file, which says what the endpoint does, what it refuses and which decision says so (D1 to D32 of
// the manual).
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/hub"
)

// Options are what the interface needs.
type Options struct {
	Hub    *hub.Hub
	Access *access.Access

	BaseURL string // what doc_url begins with; no slash at the end
	Version string
	Commit  string
	Built   weir.Time
	Started time.Time // for uptime_s; zero: now

	Heartbeat      time.Duration  // D16; 0: 15 s
	WriteTimeout   time.Duration  // D17; 0: 30 s
	MaxSubscribers int            // open subscriptions; 0: 100,000
	Bodies         *budget.Budget // memory of bodies above 4 KiB that come in; nil: without bound
	Batches        *budget.Budget // memory of batches above 64 KiB that go out; nil: without bound
	CORSOrigins    []string       // D29; "*" is any origin, none switches CORS off
	Logger         *slog.Logger

	// Health names the trouble when the service cannot take reads and writes (D32). Nil: it always can.
	Health func() (status string, ok bool)
}

// Handler answers everything under /v1, and refuses everything else.
type Handler struct {
	Options
	cors        cors
	version     []byte
	subscribers atomic.Int64
	memoryWait  time.Duration
	ends        ends
	counts      counters
	requests    requestLog
}

// New makes the handler. It takes no resources that would have to be given back.
func New(o Options) *Handler {
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.MaxSubscribers == 0 {
		o.MaxSubscribers = 100_000
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Health == nil {
		o.Health = func() (string, bool) { return "ok", true }
	}
	return &Handler{Options: o, cors: newCORS(o.CORSOrigins), version: versionObject(o), memoryWait: memoryWait}
}

// Subscribers is the number of open subscriptions.
func (h *Handler) Subscribers() int { return int(h.subscribers.Load()) }

// EndSubscriptions cuts every open subscription off. When the server stops, the hub sends subscribers away with a word, and
// those who do not take it are left for this.
func (h *Handler) EndSubscriptions() { h.ends.all() }

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id = h, w, r, newRequestID() // the rest of it is zero
	defer c.finish()
	if err := c.serve(); err != nil {
		c.refuse(err)
	}
	if r.ProtoMajor == 2 && r.ContentLength != 0 && !c.read {
		c.linger()
	}
}

// serve takes a request through the checks that all endpoints share, in the order of D19, and on to its endpoint:
//
//	key present → matches the pattern → known → not revoked → rate limit → route
//
// and in the endpoint:
//
//	stream id → stream exists → project and scope → content type → declared size → sequence → body
func (c *call) serve() error {
	c.route = parseRoute(c.r.URL)
	switch {
	case c.r.Method == http.MethodOptions:
		return c.preflight()
	case c.route.outside:
		c.peek()
		return errNoRoute
	}
	if err := c.identify(); err != nil {
		return err
	}
	endpoint := c.endpoint()
	if endpoint == nil {
		return errNoRoute
	}
	return endpoint(c)
}

// identify finds out who asks and counts the request. Whoever is refused, and whoever needs no key, is counted by
// address, and where that window is used up, 429 comes before 401 (D19, D23).
func (c *call) identify() error {
	var refusal error
	if !c.route.public() {
		c.grant, refusal = c.h.Access.Authenticate(c.r.Header["Authorization"])
		if refusal != nil && c.reads(access.DemoStream) && code(refusal) == weir.MissingAPIKey {
			if c.grant = c.h.Access.DemoReader(); c.grant != nil {
				refusal = nil
			}
		}
	}
	if c.grant == nil || c.grant.Demo() {
		c.window = c.h.Access.Take(c.grant, c.client())
	} else {
		c.window = c.h.Access.Take(c.grant, noClient)
	}
	if !c.window.Allowed {
		c.h.counts.limited[windowOf(c.grant)].Add(1)
		return errRateLimited
	}
	return refusal
}

// reads tells whether the request would read this stream and nothing else.
func (c *call) reads(id weir.StreamID) bool {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return false
	}
	k := c.route.kind
	return (k == streamRoute || k == cursorRoute || k == batchRoute) && c.route.id == string(id)
}

// endpoint is what answers this method on this route; what answers 405 when another method would do; nil when there is no
// such route.
func (c *call) endpoint() func(*call) error {
	e := &endpoints[c.route.kind]
	var f func(*call) error
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		f = e.get
	case http.MethodPost:
		f = e.post
	case http.MethodDelete:
		f = e.delete
	}
	if f == nil && e.allow != nil {
		return (*call).methodNotAllowed
	}
	return f
}

// stream finds the stream of the path, and tells whether the caller may do this with it (D19).
func (c *call) stream(action access.Action) (*hub.Stream, error) {
	id, err := weir.ParseStreamID(c.route.id)
	if err != nil {
		return nil, errStreamID
	}
	s, err := c.h.Hub.Find(c.r.Context(), id)
	if err != nil {
		return nil, err
	}
	if err := c.grant.May(action, id, s.Project); err != nil {
		return nil, err
	}
	return s, nil
}

// finish ends a call: a panic becomes a 500 like any other, or cuts the connection when the answer has begun, so that
// nobody takes half of it for the whole.
func (c *call) finish() {
	if c.held > 0 {
		c.lender.Give(c.holder(), c.held)
	}
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		c.h.counts.panics.Add(1)
		c.h.Logger.Error("panic", "request_id", string(c.id[:]), "panic", p, "stack", string(debug.Stack()))
		if c.sent {
			c.count()
			panic(http.ErrAbortHandler)
		}
		c.refuse(errPanic)
	}
	c.count()
	*c = call{}
	calls.Put(c)
}

// gone tells whether an error only says that the client went away.
func (c *call) gone(err error) bool {
	return c.r.Context().Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
