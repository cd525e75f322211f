package api

import (
	"net/http"

	"weir"
	"weir/internal/hub"
)

var errIdempotencyKey = &weir.Error{Code: weir.InvalidRequest, Message: "an Idempotency-Key is 1 to 255 visible ASCII characters, in one header field"}

// publishNext answers POST /v1/streams/{id}/publish: it stores a batch under the cursor plus one (D2) and answers 202 with
// that sequence. With an Idempotency-Key that the stream has seen it answers 200 with the first acknowledgement, before
// the body is read (D25); a key that is none is 400. Otherwise it refuses what publish refuses.
func (c *call) publishNext() error {
	s, err := c.publishTo()
	if err != nil {
		return err
	}
	return c.publish(s, &hub.Publish{})
}

// idempotencyKey is the key that was sent; empty when none was.
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
