package api

import (
	"weir"
	"weir/internal/hub"
)

// publishAt serves POST /v1/streams/{id}/{seq}. It stores a batch under a sequence that the client
// chose, which makes it idempotent: the response is 202 the first time, and 200 with
// "duplicate":true every time after that (D3). It refuses what publish refuses, and before it reads
// the body (D19): a sequence that is not a number or comes too late (409 invalid_sequence), and one
// more than 1024 above the cursor (422 sequence_too_far_ahead). It ignores an Idempotency-Key
// (D25).
func (c *call) publishAt() error {
	s, err := c.publishTo()
	if err != nil {
		return err
	}
	seq, err := weir.ParseSeq(c.route.seq)
	if err != nil {
		// D19 checks the header fields before the sequence.
		if err := c.checkDeclared(s, &hub.Publish{Chosen: true}); err != nil {
			return err
		}
		return errSequence
	}
	return c.publish(s, &hub.Publish{Chosen: true, Seq: seq})
}
