package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// The functions below let other packages, such as the dashboard, apply the rules of the API without
// repeating them.

// Tail serves a subscription, with the same frames as /v1, to a client that has no key. The caller
// must have authenticated the client in another way. The subscription ends when the channel ended
// is closed. The response includes the header fields that the caller has set on w. If Tail returns
// an error, nothing has been sent, and the error is a *weir.Error.
func (h *Handler) Tail(w http.ResponseWriter, r *http.Request, s *hub.Stream, ended <-chan struct{}) error {
	c := &call{h: h, w: w, r: r, id: newRequestID(), ended: ended}
	from, err := c.start()
	if err != nil {
		return err
	}
	return c.stay(s, from, func() {
		header := w.Header()
		header.Set("Content-Type", typeStream)
		header.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	}, (*subscriber).begin)
}

// SubscriptionsOf returns the number of open subscriptions of a key.
func (h *Handler) SubscriptionsOf(g *access.Grant) int { return h.open.count(g.Ended()) }

// ParseSpec parses and checks the body of a request that creates a stream, as POST /v1/streams does
// (D10).
func ParseSpec(body []byte) (hub.Spec, error) { return parseSpec(body) }

// ParseEvents parses and checks the body of a publish to a json stream, as the API does (D8). It
// returns the array of events in the form in which it is stored, and the number of events.
// ParseEvents overwrites body, and the returned array may share the memory of body.
func ParseEvents(body []byte) (array []byte, count uint32, err error) { return events(body) }

// StatusOf returns the HTTP status for an error. The status is 500 unless the error is, or wraps, a
// *weir.Error.
func StatusOf(err error) int {
	if e := known(err); e != nil && faultOf[e.Code] != nil {
		return faultOf[e.Code].status
	}
	return faultOf[weir.InternalError].status
}
