package api

import (
	"context"
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// Visit is a request outside /v1 that another package serves under the rules of the API. It has a
// request id, is authenticated and counts in a rate window. Its response has the header fields that
// every response of the API has.
type Visit struct{ c *call }

// Visit serves a request with the function serve. A request without an Authorization header field
// gets the permissions of the grant in the parameter open, or is refused if there is no such grant.
// If serve returns an error, it must not have sent anything, and Visit sends the error. Visit
// answers a preflight without calling serve.
func (h *Handler) Visit(w http.ResponseWriter, r *http.Request, open *access.Grant, serve func(*Visit) error) {
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id, c.route = h, w, r, newRequestID(), route{kind: besideRoute}
	defer c.finish()
	if err := c.visit(open, serve); err != nil {
		c.refuse(err)
	}
	if r.ProtoMajor == 2 && r.ContentLength != 0 && !c.read {
		c.linger()
	}
}

// VisitLater begins a visit in an event loop, as ServeLater does for requests under /v1. The function
// serve must not wait; see Visit.Waits.
func (h *Handler) VisitLater(w http.ResponseWriter, r *http.Request, open *access.Grant, serve func(*Visit) error) (taken, done bool) {
	later, ok := w.(laterWriter)
	if !ok || hub.IsShared(h.Hub) {
		return false, false
	}
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id, c.route, c.later = h, w, r, newRequestID(), route{kind: besideRoute}, later
	return true, !c.begin(func() error { return c.visit(open, serve) })
}

func (c *call) visit(open *access.Grant, serve func(*Visit) error) error {
	if err := c.admit(open); err != nil {
		return err
	}
	if c.r.Method == http.MethodOptions {
		return c.preflight()
	}
	c.w.Header()["Cross-Origin-Resource-Policy"] = crossOrigin
	return serve(&Visit{c})
}

// Waits reports whether the function that serves the visit may wait. If not, that function
// must return an error, or the result of Create, Wait, Send or Refuse.
func (v *Visit) Waits() bool { return v.c.mayWait() }

// Wait calls serve in a goroutine of its own, where serve may wait before it answers the visit.
func (v *Visit) Wait(serve func() error) error { return v.c.wait(serve) }

// Create creates a stream, notes that in the audit log, and then calls the function respond with the
// outcome. That function answers the visit.
func (v *Visit) Create(spec hub.Spec, respond func(error) error) error {
	return v.c.create(spec, func(_ weir.Stream, err error) error { return respond(err) })
}

// admit makes the checks that come before every endpoint, as serve does for /v1.
func (c *call) admit(open *access.Grant) error {
	switch {
	case c.r.Method == http.MethodOptions:
		return nil
	case c.h.Lease != nil && c.h.Lease() != nil:
		c.peek()
		return errCutOff
	case open != nil && len(c.r.Header["Authorization"]) == 0:
		c.grant = open
		if c.window = c.h.Access.Take(nil, c.client()); !c.window.Allowed {
			c.h.counts.limited[windowOf(nil)].Add(1)
			return errRateLimited
		}
		return nil
	}
	return c.identify()
}

// Request returns the request.
func (v *Visit) Request() *http.Request { return v.c.r }

// Grant returns the permissions of the caller.
func (v *Visit) Grant() *access.Grant { return v.c.grant }

// Stream returns the stream with this id, if the caller may perform the action on it.
func (v *Visit) Stream(id weir.StreamID, action access.Action) (*hub.Stream, error) {
	v.c.route.id = string(id)
	return v.c.stream(action)
}

// Set sets a header field of the response.
func (v *Visit) Set(name, value string) { v.c.w.Header().Set(name, value) }

// Stored records that the visit stored a batch, for the figures of the key.
func (v *Visit) Stored() { v.c.stored = true }

// Note records in the audit log that the visit has made a change.
func (v *Visit) Note(what, detail string) { v.c.note(what, detail) }

// Cache sets the Cache-Control header field, which is no-store otherwise.
func (v *Visit) Cache(value string) { v.c.cache = value }

// Body reads the body of the request, up to the limit of a publish (D9).
func (v *Visit) Body() ([]byte, error) { return v.c.readBody(weir.MaxBody, errVisitTooLarge) }

// errVisitTooLarge refuses the body of a visit.
var errVisitTooLarge = weir.Errorf(weir.PayloadTooLarge, "the body is larger than %d bytes", weir.MaxBody)

// Encode chooses a content coding that the client accepts, for a response with status 200 and a body
// of this size. It returns the name of the coding, or an empty string if the response will not be
// compressed. Send compresses the response accordingly.
func (v *Visit) Encode(size int) string {
	v.c.coding = v.c.choose(size)
	return string(v.c.coding)
}

// Send sends the response.
func (v *Visit) Send(status int, contentType string, body []byte) error {
	if status == http.StatusOK && v.c.coding != "" {
		v.c.sendPacked(v.c.coding, contentType, body)
		return nil
	}
	length := int64(len(body))
	if status == http.StatusNoContent || status == http.StatusNotModified {
		length = none
	}
	v.c.head(status, contentType, length, none)
	if length > 0 {
		v.c.writeLong(body)
	}
	return nil
}

// Refuse sends an error with a status of the caller's choice. It always returns nil.
func (v *Visit) Refuse(status int, code weir.Code, message string) error {
	f := *faultOf[code]
	f.status = status
	v.c.fault, v.c.message = faultOf[code], message
	b := v.c.appendError(nil, &f, message)
	return v.c.answer(status, b)
}

// Reserve reserves memory for a response before it is read from the store (D34). It fails if no
// memory becomes free in time.
func (v *Visit) Reserve(bytes int) error { return v.c.reserve(bytes) }

// Await calls the function wait as a long poll, which counts as a subscription (D34). The context of
// wait ends when the client leaves or its key is revoked; Await then returns an error. If the stream
// was deleted while wait waited, Await returns StreamNotFound. If wait returns ErrStopping, Await
// returns nil.
func (v *Visit) Await(s *hub.Stream, wait func(context.Context) error) error {
	return v.c.await(s, wait)
}

// Events sends the events of a subscription.
type Events struct {
	c *call
	w *writer
}

// Send sends and flushes frames, and then frees the memory that Reserve reserved.
func (e *Events) Send(frames ...[]byte) error {
	err := e.w.send(frames...)
	e.w.loan.Shrink(0)
	return err
}

// Reserve reserves memory for frames before they are read from the store. If it fails, the
// subscription should end, so that the client reconnects later.
func (e *Events) Reserve(bytes int) error {
	if bytes <= unlent {
		return nil
	}
	ctx, cancel := context.WithTimeout(e.w.ended, e.c.h.memoryWait)
	defer cancel()
	if e.w.loan.Grow(ctx, int64(bytes)) != nil {
		return errMemory
	}
	return nil
}

// Stay sends events until the function follow returns. The request counts as a subscription (D34).
// The context of follow ends when the client leaves or its key is revoked. If follow returns nil,
// the client is expected to reconnect.
func (v *Visit) Stay(s *hub.Stream, follow func(ctx context.Context, sub *hub.Subscription, out *Events) error) error {
	c := v.c
	c.ended = c.grant.Ended()
	return c.stay(s, hub.Head, func() { c.head(http.StatusOK, typeStream, none, none) }, func(s *subscriber, w *writer) error {
		s.charge(w)
		err := follow(w.ended, s.sub, &Events{c, w})
		if s.whyEnded(err, w) == endFailed {
			c.h.Logger.Error("subscription failed", "request_id", string(c.id[:]), "error", err)
		}
		return err
	})
}
