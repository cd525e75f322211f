package api

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// laterWriter is the response writer of an event loop, which serves many connections in one
// goroutine.
type laterWriter interface {
	http.ResponseWriter

	// ReuseBody tells the loop that the handler is done with the body that it has taken over.
	ReuseBody()

	// Ready makes the event loop call f.Finish in the loop's goroutine, and then send the response.
	Ready(f interface{ Finish() })
}

// memoWriter is implemented by response writers that keep a value from one request on a connection
// to the next.
type memoWriter interface {
	// Memo returns a place in which the API keeps what it has learned from the header fields of the
	// request. The event loop clears this place if a later request on the connection has other header
	// fields, not counting Content-Length. The path may differ.
	Memo() *any
}

// fieldFacts is what is known about the header fields of a request. Most connections send the same
// fields with every request, so an event loop keeps the facts for the next request.
type fieldFacts struct {
	credentials access.Credentials
	plain       bool // the fields say that the body is JSON, without a content coding, and no field changes how a batch is published
	direct      bool // no field names a proxy or the origin of a page
}

// readFacts sets c.facts if an event loop serves the request.
func (c *call) readFacts() {
	w, ok := c.later.(memoWriter)
	if !ok {
		return
	}
	memo := w.Memo()
	if c.facts, ok = (*memo).(*fieldFacts); ok {
		return
	}
	h := c.r.Header
	t := h["Content-Type"]
	c.facts = &fieldFacts{
		credentials: access.ReadCredentials(h["Authorization"]),
		plain:       len(t) == 1 && t[0] == jsonType && lacks(h, "Content-Encoding", "Idempotency-Key", weir.HeaderContiguous, weir.HeaderPublisher),
		direct:      lacks(h, "X-Forwarded-For", "Origin"),
	}
	*memo = c.facts
}

// lacks reports whether none of these header fields is present.
func lacks(h http.Header, names ...string) bool {
	for _, name := range names {
		if h[name] != nil {
			return false
		}
	}
	return true
}

// authenticate returns the grant of the key in the header fields.
func (c *call) authenticate() (*access.Grant, error) {
	if c.facts != nil {
		return c.h.Access.Admit(c.facts.credentials, c.mayWait())
	}
	return c.h.Access.Admit(access.ReadCredentials(c.r.Header["Authorization"]), c.mayWait())
}

// errPending is returned by an endpoint whose outcome is still to come.
var errPending = errors.New("the outcome is pending")

// ServeLater begins to answer a publish, a subscription or the creation of a stream, and never waits,
// neither for the disk nor for another request. If the outcome is still to come, taken is true and done is
// false, and the response is complete once the event loop has called Finish. After one or more calls
// of ServeLater, the caller must call Flush.
//
// If both results are false, ServeLater has done nothing, and ServeHTTP must answer the request. This
// is so for requests that may have to wait before the store can begin with them:
//
//   - all requests other than publishes, subscriptions and creations
//   - publishes of more than 64 KiB, and creations of more than 4 KiB
//   - creations and subscriptions on a node of a cluster
//
// A subscription begins in a goroutine, because it may have to read the log. Then it is parked.
//
// A publish on a node of a cluster continues in a goroutine if the node does not know the key or the
// stream, because then it must ask the other nodes.
func (h *Handler) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	later, ok := w.(laterWriter)
	at := parseRoute(r.URL)
	if !ok || !h.canBegin(w, r, at.kind) {
		return false, false
	}
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id, c.later, c.route = h, w, r, newRequestID(), later, at
	c.readFacts()
	if r.Method == http.MethodGet {
		c.wait(c.serve)
		return true, false
	}
	return true, !c.begin(c.serve)
}

// canBegin reports whether ServeLater takes a request on a route of this kind.
func (h *Handler) canBegin(w http.ResponseWriter, r *http.Request, kind routeKind) bool {
	switch {
	case r.Method == http.MethodGet:
		_, ok := w.(parkingWriter)
		return ok && kind == streamRoute && acceptsEvents(r.Header["Accept"]) && !hub.IsShared(h.Hub)
	case r.Method != http.MethodPost || r.ContentLength < 0 || r.ContentLength > secondRead:
		return false
	case kind == streamsRoute:
		return r.ContentLength <= firstRead && !hub.IsShared(h.Hub)
	default:
		return kind == nextRoute || kind == atRoute
	}
}

// Flush makes the store process the batches that ServeLater has queued. If the disk is quick,
// Flush may wait until they are stored; see hub.Flush.
func (h *Handler) Flush() { hub.Flush(h.Hub) }

// begin calls the function serve, which handles the request until its outcome is known or pending.
// If the outcome is pending, other goroutines may already use the call.
func (c *call) begin(serve func() error) (pending bool) {
	defer func() {
		if !pending {
			c.end(recover())
		}
	}()
	err := serve()
	if err == errPending {
		return true
	}
	if err != nil {
		c.refuse(err)
	}
	return false
}

// publishLater publishes a batch after its header fields were checked. If the publish must wait for
// anything but the disk, it waits in a goroutine of its own.
func (c *call) publishLater(s *hub.Stream, p *hub.Publish) error {
	needsBody, err := s.Foresee(p)
	if err == nil && !needsBody {
		return c.storeBeside(func() (weir.Ack, error) { return c.store(s, p) })
	}
	if err == nil && !c.borrowNow(c.r.ContentLength) {
		return c.storeBeside(func() (weir.Ack, error) {
			if err := c.readBatch(s, p); err != nil { // waits for memory
				return weir.Ack{}, err
			}
			return s.Publish(context.Background(), p)
		})
	}
	if err == nil {
		err = c.readBatch(s, p)
	}
	if err != nil {
		p.Release()
		return err
	}
	s.Propose(p, c)
	return errPending
}

// storeBeside calls a function that stores a batch, in a goroutine of its own.
func (c *call) storeBeside(store func() (weir.Ack, error)) error {
	return c.wait(func() error {
		ack, err := store()
		switch {
		case err == nil:
			return c.acknowledge(&ack)
		case code(err) == weir.StreamNotFound:
			return c.missing(err)
		}
		return err
	})
}

// create creates a stream, notes that in the audit log, and calls the function respond with the
// outcome. In an event loop it does not wait: the loop calls respond later.
func (c *call) create(spec hub.Spec, respond func(weir.Stream, error) error) error {
	if c.mayWait() {
		s, err := c.h.Hub.Create(c.r.Context(), spec)
		if err == nil {
			c.note(StreamCreated, s.Name+" "+string(s.ID))
		}
		return respond(s, err)
	}
	c.h.Hub.CreateLater(spec, func(s weir.Stream, err error) {
		c.resume = func() error { return respond(s, err) }
		if err == nil {
			if record := c.h.Note(StreamCreated); record != nil {
				go func() {
					defer c.arrive()
					record(c.r.Context(), c.grant.String(), c.client(), s.Name+" "+string(s.ID))
				}()
				return
			}
		}
		c.later.Ready(c)
	})
	return errPending
}

// The names that changes of streams have in the audit log.
const (
	StreamCreated = "stream created"
	StreamClosed  = "stream closed"
)

// mayWait reports whether the goroutine that serves the call may wait.
func (c *call) mayWait() bool { return c.later == nil || c.waits }

// wait calls the function serve in a goroutine, where serve may wait.
func (c *call) wait(serve func() error) error {
	c.waits = true
	go func() {
		defer c.arrive()
		err := serve()
		c.resume = func() error { return err }
	}()
	return errPending
}

// arrive ends a goroutine that has waited for the outcome of a call.
func (c *call) arrive() {
	if p := recover(); p != nil {
		c.panicked(p, debug.Stack())
		c.failure = errPanic
	}
	c.later.Ready(c)
}

// Settle makes the event loop call f.Finish, which calls Published. So the event loop computes the
// outcome and sends the response, and no goroutine of the store has to.
func (c *call) Settle(f interface{ Finish() }) {
	c.inLoop = true
	c.later.Ready(f)
}

// Published implements hub.Outcome. The response is always sent by the event loop.
func (c *call) Published(ack weir.Ack, err error) {
	if p, ok := errors.AsType[*hub.Panic](err); ok {
		c.panicked(p.Value, p.Stack)
		err = errPanic
	}
	if c.inLoop {
		c.ack, c.failure = ack, err
		c.Finish()
		return
	}
	if err != nil && code(err) == weir.StreamNotFound { // missing may have to ask other nodes
		c.wait(func() error { return c.missing(err) })
		return
	}
	c.ack, c.failure = ack, err
	c.later.Ready(c)
}

// Finish sends the outcome of a call. The event loop calls it.
func (c *call) Finish() {
	defer c.finish()
	defer c.proposed.Release()
	err := c.failure
	switch {
	case err != nil && c.sent: // a goroutine has begun the response, and then it panicked or the subscription ended
		panic(http.ErrAbortHandler)
	case err == nil && c.resume != nil:
		err = c.resume()
	case err == nil:
		err = c.acknowledge(&c.ack)
	}
	if err != nil {
		c.refuse(err)
	}
	if c.proposed.Free {
		c.later.ReuseBody()
	}
}
