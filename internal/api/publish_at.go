package api

import (
	"net/http"

	"weir"
	"weir/internal/hub"
)

// publishAt serves POST /v1/streams/{id}/{seq}. It stores a batch under a sequence that the client
// chose. This makes the request idempotent: the response is 202 the first time, and 200 with
// "duplicate":true every time after that (D3).
//
// publishAt refuses the requests that publish refuses. Before it reads the body (D19), it also
// refuses a sequence that is not a number or can no longer be used (409 invalid_sequence), and a
// sequence more than 1024 above the cursor (422 sequence_too_far_ahead). If a contiguous publish
// has a sequence more than one above the cursor, the response is 412 sequence_not_next (D38).
// publishAt ignores an Idempotency-Key (D25).
func (c *call) publishAt() error {
	s, err := c.publishTo()
	if err != nil {
		return err
	}
	p := &c.proposed
	p.Chosen = true
	if p.Seq, err = weir.ParseSeq(c.route.seq); err != nil {
		// D19 checks the header fields before the sequence.
		if err := c.checkDeclared(s, p); err != nil {
			return err
		}
		return errSequence
	}
	return c.publish(s, p)
}

var (
	errContiguous = &weir.Error{Code: weir.InvalidRequest, Message: `invalid x-svc-contiguous: send one header field with the value "true", or none`}
	errPublisher  = &weir.Error{Code: weir.InvalidRequest, Message: "invalid x-svc-publisher: send one header field of 1 to 64 visible ASCII characters, or none"}
)

// readOrder reads the header fields x-svc-contiguous and x-svc-publisher into p (D38).
func readOrder(h http.Header, p *hub.Publish) error {
	if values := h[weir.HeaderContiguous]; values != nil {
		if len(values) != 1 || values[0] != "true" {
			return errContiguous
		}
		p.Contiguous = true
	}
	if values := h[weir.HeaderPublisher]; values != nil {
		if len(values) != 1 || values[0] == "" || len(values[0]) > weir.MaxPublisher || !visible(values[0], false) {
			return errPublisher
		}
		p.Publisher = values[0]
	}
	return nil
}
