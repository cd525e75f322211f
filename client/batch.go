package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"weir"
)

// Batch is a batch of a stream. A batch of a json stream has Events, a batch of a raw stream has
// ContentType and Data.
type Batch struct {
	Seq         weir.Seq
	Time        weir.Time // when the batch was stored; 0 for a raw batch from [Client.Batch], because that response has no time
	Events      []json.RawMessage
	ContentType string
	Data        []byte

	// Gap, if not nil, says that the subscriber has missed batches. All other fields are then zero.
	Gap *Gap

	// Reset, if not nil, says that the stream is no longer the one that the subscriber knew. All
	// other fields are then zero, and the subscriber continues with the oldest stored batch.
	Reset *Reset
}

// Gap is a range of sequence numbers, including From and To. The subscriber will not get these
// batches, because they were evicted or lost before it could read them.
type Gap struct {
	From   weir.Seq `json:"from"`
	To     weir.Seq `json:"to"`
	Reason string   `json:"reason"` // "evicted" or "lost"
}

// Decode decodes the events of a batch of a json stream as values of type T.
func Decode[T any](b Batch) ([]T, error) {
	list := make([]T, len(b.Events))
	for i, event := range b.Events {
		if err := json.Unmarshal(event, &list[i]); err != nil {
			return nil, fmt.Errorf("decode event %d of batch %d: %w", i, b.Seq, err)
		}
	}
	return list, nil
}

// Batch fetches one batch. If the batch was evicted or never stored, the error has the code
// [weir.StreamNotFound].
func (c *Client) Batch(ctx context.Context, id weir.StreamID, seq weir.Seq) (Batch, error) {
	got := fetched{seq: seq}
	if _, err := c.do(ctx, batchRequest(id, seq), &got); err != nil {
		return Batch{}, err
	}
	return got.batch, nil
}

func batchRequest(id weir.StreamID, seq weir.Seq) *request {
	return &request{method: "GET", path: streamPath(id) + "/batches/" + seq.String()}
}

// fetched is a batch from a response. Its method decode returns an error if the response does not
// hold the batch that the client asked for.
type fetched struct {
	seq   weir.Seq
	batch Batch
}

// decode decodes a response. A response of type JSON is a batch object, and a response of bytes is
// a raw batch. Weir sends no other content type.
func (f *fetched) decode(contentType string, b []byte) (err error) {
	media, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(media) {
	case typeBytes:
		f.batch = Batch{Seq: f.seq, ContentType: contentType, Data: b}
	case typeJSON:
		if f.batch, err = parseBatch(b); err == nil && f.batch.Seq != f.seq {
			err = fmt.Errorf("it is batch %d, not %d", f.batch.Seq, f.seq)
		}
	default:
		err = fmt.Errorf("its content type is %q", contentType)
	}
	return err
}

// parseBatch decodes a batch object of a stream of either mode.
func parseBatch(b []byte) (Batch, error) {
	var object struct {
		Seq         *weir.Seq       `json:"seq"`
		TS          weir.Time       `json:"ts"`
		Events      json.RawMessage `json:"events"`
		ContentType string          `json:"content_type"`
		Data        []byte          `json:"data"`
	}
	if err := json.Unmarshal(b, &object); err != nil {
		return Batch{}, fmt.Errorf("decode a batch: %w", err)
	}
	if object.Seq == nil || *object.Seq > weir.MaxSeq {
		return Batch{}, fmt.Errorf("decode a batch: it has no valid sequence number")
	}
	batch := Batch{Seq: *object.Seq, Time: object.TS, ContentType: object.ContentType, Data: object.Data}
	if object.ContentType == "" {
		if len(object.Events) == 0 || object.Events[0] != '[' {
			return Batch{}, fmt.Errorf("decode batch %d: it has no array of events", batch.Seq)
		}
		batch.Events = elements(object.Events)
	}
	return batch, nil
}

// elements splits a valid JSON array into its elements. The elements are not copied: they point
// into the array.
func elements(array []byte) []json.RawMessage {
	list := []json.RawMessage{}
	depth, start := 0, 1
	take := func(end int) {
		if e := bytes.TrimSpace(array[start:end]); len(e) > 0 {
			list = append(list, json.RawMessage(e[:len(e):len(e)]))
		}
		start = end + 1
	}
	for i := 0; i < len(array); i++ {
		switch array[i] {
		case '"':
			i = stringEnd(array, i) - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				take(i)
			}
		case ',':
			if depth == 1 {
				take(i)
			}
		}
	}
	return list
}

// stringEnd returns the index after the string literal that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
