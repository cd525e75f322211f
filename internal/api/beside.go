package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// The functions below let other packages, such as the dashboard, apply the rules of the API without
// repeating them.

// Loan is memory from the budget for responses (D34). Another package borrows it for one request
// and must end the loan.
type Loan struct{ c *call }

// Lend returns a loan that has no memory yet. The caller must have authenticated the request.
func (h *Handler) Lend(w http.ResponseWriter, r *http.Request) *Loan {
	return &Loan{&call{h: h, w: w, r: r}}
}

// Reserve makes the loan this many bytes large. Call it before the bytes are read from the store.
// It fails with a *weir.Error if no memory becomes free in time.
func (l *Loan) Reserve(bytes int) error { return l.c.reserve(bytes) }

// Send sends a response body in pieces, each with a deadline of its own (D17). Memory that was
// reserved for the body becomes free while it is sent, so the caller must not use the body again.
func (l *Loan) Send(body []byte) { l.c.writeLong(body) }

// End gives the memory back to the budget.
func (l *Loan) End() { l.c.loan.End() }

// SubscriptionsOf returns the number of open subscriptions of a key.
func (h *Handler) SubscriptionsOf(g *access.Grant) int { return h.open.count(g.Ended()) }

// ParseSpec parses and checks the body of a request that creates a stream, as POST /v1/streams does
// (D10).
func ParseSpec(body []byte) (hub.Spec, error) { return parseSpec(body) }

// StatusOf returns the HTTP status for an error. The status is 500 unless the error is, or wraps, a
// *weir.Error.
func StatusOf(err error) int {
	if e := known(err); e != nil && faultOf[e.Code] != nil {
		return faultOf[e.Code].status
	}
	return faultOf[weir.InternalError].status
}
