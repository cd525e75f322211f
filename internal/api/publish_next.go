package api

import (
	"net/http"

	"weir"
)

var errIdempotencyKey = &weir.Error{Code: weir.InvalidRequest, Message: "invalid Idempotency-Key: send one header field of 1 to 255 visible ASCII characters"}

// publishNext serves POST /v1/streams/{id}/publish. It stores a batch under the next sequence,
// which is one above the cursor (D2), and responds with 202 and that sequence. If a batch with the
// same Idempotency-Key was stored before, publishNext responds with 200 and the first
// acknowledgement, without reading the body (D25). It responds with 400 to a malformed
// Idempotency-Key. Apart from that, it refuses the same requests as publish.
func (c *call) publishNext() error {
	s, err := c.publishTo()
	if err != nil {
		return err
	}
	return c.publish(s, &c.proposed)
}

// idempotencyKey returns the Idempotency-Key of the request, or "" if it has none.
func idempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	if values == nil {
		return "", nil
	}
	if len(values) != 1 || values[0] == "" || len(values[0]) > weir.MaxIdempotencyKey || !visible(values[0], false) {
		return "", errIdempotencyKey
	}
	return values[0], nil
}
