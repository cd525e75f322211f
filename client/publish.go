package client

import (
	"context"
	"strconv"

	"weir"
)

// Publish stores a batch under the next sequence number, which the service chooses. It returns once
// the batch is durable. It sends a random idempotency key, so that a retry does not store the batch
// twice. If the call fails although an attempt may have stored the batch, the error is an
// [*UnknownError] with that key.
func (c *Client) Publish(ctx context.Context, id weir.StreamID, p Payload) (weir.Ack, error) {
	return c.PublishOnce(ctx, id, weir.Base62(22), p)
}

// PublishOnce is like [Client.Publish], but the caller chooses the idempotency key: 1 to 255
// visible ASCII characters. A program that saves the key can repeat the call even after a restart.
// The service remembers a key for 24 hours, even if the batch is evicted earlier.
func (c *Client) PublishOnce(ctx context.Context, id weir.StreamID, key string, p Payload) (ack weir.Ack, err error) {
	if err := p.check(); err != nil {
		return ack, err
	}
	if !validKey(key) {
		return ack, weir.Errorf(weir.InvalidRequest, "the idempotency key is %d bytes; it must be 1 to %d visible ASCII characters", len(key), weir.MaxIdempotencyKey)
	}
	got := receipt{stream: id}
	unsure, err := c.do(ctx, publishNext(id, key, p), &got)
	if unsure && err != nil {
		err = &UnknownError{Key: key, Err: err}
	}
	return got.Ack, err
}

func publishNext(id weir.StreamID, key string, p Payload) *request {
	return &request{method: "POST", path: streamPath(id) + "/publish", contentType: p.contentType, body: p.body, key: key}
}

// PublishAt stores a batch under a sequence number that the caller chooses. It returns once the
// batch is durable. The call is safe to repeat: if the number already holds a batch, that batch
// stays and the acknowledgement has Duplicate set.
func (c *Client) PublishAt(ctx context.Context, id weir.StreamID, seq weir.Seq, p Payload) (ack weir.Ack, err error) {
	if err := p.check(); err != nil {
		return ack, err
	}
	got := receipt{stream: id, seq: &seq}
	unsure, err := c.do(ctx, publishAt(id, seq, p), &got)
	if unsure && err != nil {
		err = &UnknownError{Seq: seq, Err: err}
	}
	return got.Ack, err
}

func publishAt(id weir.StreamID, seq weir.Seq, p Payload) *request {
	return &request{method: "POST", path: streamPath(id) + "/" + strconv.FormatUint(uint64(seq), 10), contentType: p.contentType, body: p.body}
}

func validKey(key string) bool {
	for i := 0; i < len(key); i++ {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return false
		}
	}
	return key != "" && len(key) <= weir.MaxIdempotencyKey
}
