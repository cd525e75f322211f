package api

import (
	"weir"
	"weir/internal/hub"
)

var errSequence = &weir.Error{Code: weir.InvalidSequence, Message: weir.ErrSeq.Error()}

// publishAt answers POST /v1/streams/{id}/{seq}: it stores a batch under a sequence that the client chose, which makes it
// idempotent: 202 the first time, 200 with duplicate true ever after (D3). It refuses, beside what publish refuses, a
// sequence that is no number or too late (409 invalid_sequence) and one that is more than 1024 above the cursor (422
// sequence_too_far_ahead), both before the body is read (D19). An Idempotency-Key is not looked at (D25).
func (c *call) publishAt() error {
	s, err := c.publishTo()
	if err != nil {
		return err
	}
	seq, err := weir.ParseSeq(c.route.seq)
	if err != nil {
		// What comes before the sequence in D19 is refused first.
		if err := c.checkDeclared(s, &hub.Publish{Chosen: true}); err != nil {
			return err
		}
		return errSequence
	}
	return c.publish(s, &hub.Publish{Chosen: true, Seq: seq})
}
