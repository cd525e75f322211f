// Package api implements the HTTP API: everything under /v1 and /manage/v1, on net/http. It
// translates requests into calls to the hub, and results into responses. It keeps neither the state
// of streams, which belongs to the hub, nor the permissions of keys, which belong to package access.
//
// Each endpoint has a file of its own. The comment in that file says what the endpoint does, which
// requests it refuses, and which decisions (D1 and up, in docs/decisions.md) require that.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/hub"
)

// Options configure a [Handler]. Hub and Access are required.
type Options struct {
	Hub    *hub.Hub
	Access *access.Access

	BaseURL string // prefix of doc_url, without a trailing slash
	Version string
	Commit  string
	Built   weir.Time
	Started time.Time // time from which uptime_s is counted; zero means now

	Heartbeat      time.Duration  // idle time before a keep-alive comment (D16); 0 means 15 s
	WriteTimeout   time.Duration  // time a client has to accept 64 KiB (D17); 0 means 30 s
	MaxSubscribers int            // maximum number of open subscriptions, divided into shares (D34); 0 means 100,000
	PerKey         int            // maximum number of open subscriptions of one key; 0 means no limit besides its share
	PerProject     int            // maximum number of open subscriptions of one project; 0 means no limit besides its share
	PerAddress     int            // maximum number of open subscriptions of one client address; 0 means no limit
	Bodies         *budget.Budget // memory for request bodies above 4 KiB; nil means unlimited
	Batches        *budget.Budget // memory for batches above 32 KiB while they are sent; nil means unlimited
	CORSOrigins    []string       // allowed origins (D29); "*" allows all origins, an empty list disables CORS
	Logger         *slog.Logger   // nil discards all logs

	// Health reports whether the service accepts reads and writes. If it does not, status names the
	// problem (D32). If Health is nil, the service counts as always healthy.
	Health func() (status string, ok bool)

	// Note counts a change that a program has made, for the audit log (D33), and does not wait. If
	// the change gets an entry of its own, Note returns a function. The caller must call this
	// function with the id of the key and the address of the program. The function stores the
	// entry, and waits until the entry is durable. No argument contains a whole key. If Note is
	// nil, nothing is recorded.
	Note func(what string) func(ctx context.Context, who string, from netip.Addr, detail string)

	// Lease returns an error while this node cannot know whether keys and streams still exist
	// (D18). Then all requests that need a key get 503. If Lease is nil, the node always knows.
	Lease func() error
}

// Handler serves everything under /v1 and /manage/v1, and answers every other path with 404.
type Handler struct {
	Options
	cors       cors
	version    []byte
	places     *budget.Places
	memoryWait time.Duration
	open       subscriptions
	counts     counters
	requests   requestLog
	full       *weir.Error // the error for a subscription that is refused because MaxSubscribers are open
}

// New returns a handler. It holds no resources and needs no closing.
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
	if o.Note == nil {
		o.Note = func(string) func(context.Context, string, netip.Addr, string) { return nil }
	}
	if o.Health == nil {
		o.Health = func() (string, bool) { return "ok", true }
	}
	full := weir.Errorf(weir.Overloaded, "this server has reached its limit of %d open subscriptions; "+
		"retry later or on another server", o.MaxSubscribers)
	places := budget.NewPlaces(budget.PlaceOptions{
		Total: o.MaxSubscribers, Key: o.PerKey, Project: o.PerProject, Address: o.PerAddress, Demo: string(access.DemoProject),
	})
	return &Handler{Options: o, cors: newCORS(o.CORSOrigins), version: versionObject(o), memoryWait: memoryWait, full: full, places: places}
}

// Subscribers returns the number of open subscriptions.
func (h *Handler) Subscribers() int { return h.places.Taken() }

// EndSubscriptions cuts off every open subscription. When the server stops, the hub first ends
// subscriptions in an orderly way; EndSubscriptions is for the subscriptions that remain because
// their clients have stopped reading.
func (h *Handler) EndSubscriptions() { h.open.endAll() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id, c.route = h, w, r, newRequestID(), parseRoute(r.URL) // all other fields are zero: see finish
	defer c.finish()
	if err := c.serve(); err != nil {
		c.refuse(err)
	}
	if r.ProtoMajor == 2 && r.ContentLength != 0 && !c.read {
		c.linger()
	}
}

// serve makes the checks that all endpoints share, in the order of D19, and calls the endpoint:
//
//	key present → matches the pattern → known → not revoked → rate limit → route
//
// The endpoint then checks:
//
//	stream id → stream exists → project and scope → content type → declared size → sequence → body
func (c *call) serve() error {
	switch {
	case c.r.Method == http.MethodOptions:
		return c.preflight()
	case c.route.outside:
		c.peek()
		return errNoRoute
	case c.h.Lease != nil && !c.route.public() && c.h.Lease() != nil:
		c.peek()
		return errCutOff
	}
	switch err := c.identify(); {
	case err == access.ErrMustWait:
		return c.wait(c.serve)
	case err != nil:
		return err
	}
	return c.act()
}

// act calls the endpoint.
func (c *call) act() error {
	endpoint := c.endpoint()
	if endpoint == nil {
		return errNoRoute
	}
	err := endpoint(c)
	switch {
	case err == nil || err == errPending || code(err) != weir.StreamNotFound:
		return err
	case c.mayWait():
		return c.missing(err)
	case hub.IsShared(c.h.Hub):
		c.forget()
		return c.wait(c.act)
	}
	return err
}

// forget lets an endpoint begin again. The body must not have been read.
func (c *call) forget() {
	c.proposed.Release()
	c.known, c.created, c.proposed = nil, nil, hub.Publish{}
}

// missing returns err, which says that the stream does not exist, unless a new stream has its id by
// now. Then missing calls the endpoint again.
func (c *call) missing(err error) error {
	if c.known == nil {
		return err
	}
	switch replaced, failure := hub.Replaced(c.r.Context(), c.known, err); {
	case failure != nil:
		return failure
	case !replaced:
		return err
	case c.read:
		return errReplaced // the body cannot be read again
	}
	c.forget()
	return c.endpoint()(c)
}

// identify authenticates the request and counts it in a rate window. Requests without a valid key,
// and requests that need no key, count in the window of the client's address. When that window is
// used up, the response is 429, even if it would otherwise be a refusal of the key (D19, D23).
func (c *call) identify() error {
	var refusal error
	if c.route.manages {
		c.grant, refusal = c.h.Access.AuthenticateToken(c.r.Header["Authorization"])
	} else if !c.route.public() {
		c.grant, refusal = c.authenticate()
		if refusal == access.ErrMustWait {
			return refusal // before the request is counted
		}
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

// reads reports whether the request reads this stream and changes nothing.
func (c *call) reads(id weir.StreamID) bool {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return false
	}
	switch c.route.kind {
	case streamRoute, cursorRoute, batchRoute, batchesRoute:
		return c.route.id == string(id)
	}
	return false
}

// endpoint returns the function for this method on this route. It returns methodNotAllowed if the
// route only has other methods, and nil if there is no such route.
func (c *call) endpoint() func(*call) error {
	e := &endpoints[c.route.kind]
	var f func(*call) error
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		f = e.get
	case http.MethodPost:
		f = e.post
	case http.MethodPatch:
		f = e.patch
	case http.MethodDelete:
		f = e.delete
	}
	if f == nil && e.allow != nil {
		return (*call).methodNotAllowed
	}
	return f
}

// stream returns the stream named in the path, if the caller may perform the action on it (D19).
// From then on every response, even an error, says when the stream was created (D39).
func (c *call) stream(action access.Action) (*hub.Stream, error) {
	id, err := weir.ParseStreamID(c.route.id)
	if err != nil {
		return nil, errStreamID
	}
	var s *hub.Stream
	if c.mayWait() {
		s, err = c.h.Hub.Find(c.r.Context(), id)
	} else {
		s, err = c.h.Hub.Stream(id)
	}
	if err != nil {
		return nil, err
	}
	if err := c.grant.May(action, id, s.Project); err != nil {
		return nil, err
	}
	c.known, c.created = s, &s.CreatedAt
	return s, nil
}

// finish ends a call, counts it and recycles it. A panic becomes a 500. If the response has begun,
// the panic closes the connection instead, so that no client takes half a response for a whole one.
func (c *call) finish() { c.end(recover()) }

// end does the work of finish. The parameter p is the value of the panic that ended the call, or nil.
func (c *call) end(p any) {
	c.loan.End()
	c.encoder.End()
	if p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			c.count()
			panic(p)
		}
		c.panicked(p, debug.Stack())
		if c.sent {
			c.count()
			panic(http.ErrAbortHandler)
		}
		c.refuse(errPanic)
	}
	if !c.parked {
		c.count()
	}
	*c = call{}
	calls.Put(c)
}

// panicked counts and logs a panic.
func (c *call) panicked(p any, stack []byte) {
	c.h.counts.panics.Add(1)
	c.h.Logger.Error("request handler panicked", "request_id", string(c.id[:]), "panic", p, "stack", string(stack))
}

// gone reports whether an error only means that the client disconnected.
func (c *call) gone(err error) bool {
	return c.r.Context().Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
