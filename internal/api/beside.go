package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// What other rooms that serve people need of the interface, so that its rules are written once.

// Tail answers a request with the subscription of a stream, in the frames that subscribers under /v1 get, to somebody who
// has been let in otherwise than by a key; it is over when ended is closed. Header fields that are set already go out with
// the answer. An error is a *weir.Error, and nothing has been sent then.
func (h *Handler) Tail(w http.ResponseWriter, r *http.Request, s *hub.Stream, ended <-chan struct{}) error {
	c := &call{h: h, w: w, r: r, id: newRequestID(), ended: ended}
	from, err := c.from()
	if err != nil {
		return err
	}
	return c.stay(s, from, func() {
		header := w.Header()
		header.Set("Content-Type", typeStream)
		header.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	})
}

// SubscriptionsOf is how many subscriptions a key has open.
func (h *Handler) SubscriptionsOf(g *access.Grant) int { return h.ends.count(g.Ended()) }

// ParseSpec reads the body of a create, as POST /v1/streams does (D10).
func ParseSpec(body []byte) (hub.Spec, error) { return parseSpec(body) }

// ParseEvents reads the body of a publish to a json stream, as the interface does (D8): the array as it is kept, and how
// many events it holds. The array may share the body's memory.
func ParseEvents(body []byte) (array []byte, count uint32, err error) { return events(body) }

// StatusOf is the HTTP status of an error that a caller may know; 500 for every other one.
func StatusOf(err error) int {
	if e := known(err); e != nil && faultOf[e.Code] != nil {
		return faultOf[e.Code].status
	}
	return faultOf[weir.InternalError].status
}
