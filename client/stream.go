package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/url"
	"strconv"

	"weir"
)

// NewStream describes a stream to create. Only Name is required; zero fields get the defaults of
// the service.
type NewStream struct {
	Name             string        `json:"name"`
	ID               weir.StreamID `json:"id"` // if empty, the client chooses a random id, which makes retries safe
	RetentionSeconds int64         `json:"retention_seconds,omitempty"`
	MaxBytes         int64         `json:"max_bytes,omitempty"`
	Mode             weir.Mode     `json:"mode,omitempty"`
	TTLSeconds       int64         `json:"ttl_seconds,omitempty"` // delete the stream when it was not used for this long; 0 keeps it
}

// CreateStream creates a stream. If the id already exists, the error has the code
// [weir.StreamNameTaken]. If the service cannot be reached, the stream may have been created: call
// CreateStream again with the same id.
func (c *Client) CreateStream(ctx context.Context, n NewStream) (weir.Stream, error) {
	if n.ID == "" {
		n.ID = weir.NewStreamID()
	}
	b, err := json.Marshal(n)
	if err != nil {
		return weir.Stream{}, err
	}
	s := described{id: n.ID}
	unsure, err := c.do(ctx, &request{method: "POST", path: "/v1/streams", contentType: typeJSON, body: b}, &s)
	if unsure && CodeOf(err) == weir.StreamNameTaken {
		// An earlier attempt may have created the stream although the response to that attempt was
		// lost.
		switch made, asking := c.Stream(ctx, n.ID); {
		case asking == nil && made.Name == n.Name:
			return made, nil
		case asking != nil && c.transient(asking):
			return weir.Stream{}, asking
		}
	}
	return s.Stream, err
}

// described is a stream object from a response. Its method check returns an error if the object
// does not describe the stream that the client asked for.
type described struct {
	weir.Stream
	id weir.StreamID
}

func (d *described) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &d.Stream) }

func (d *described) check(decoding error) error {
	if decoding == nil && d.ID != d.id {
		return errors.New("it describes another stream, or none")
	}
	return decoding
}

// list is a page of streams from a response.
type list struct {
	Data []weir.Stream `json:"data"`
	More bool          `json:"has_more"`
	Next string        `json:"next_cursor"`
}

func (l *list) check(decoding error) error {
	if decoding == nil && l.Data == nil {
		return errors.New("it is not a list of streams")
	}
	return decoding
}

// Streams yields the streams that the key may read, newest first. It fetches them page by page. If
// Streams yields an error, the iteration ends.
func (c *Client) Streams(ctx context.Context) iter.Seq2[weir.Stream, error] {
	return func(yield func(weir.Stream, error) bool) {
		for token := ""; ; {
			var page list
			path := "/v1/streams?limit=" + strconv.Itoa(weir.MaxPage)
			if token != "" {
				path += "&cursor=" + url.QueryEscape(token)
			}
			if _, err := c.do(ctx, &request{method: "GET", path: path}, &page); err != nil {
				yield(weir.Stream{}, err)
				return
			}
			for _, s := range page.Data {
				if !yield(s, nil) {
					return
				}
			}
			if token = page.Next; !page.More || token == "" {
				return
			}
		}
	}
}

// Stream returns the current state of a stream.
func (c *Client) Stream(ctx context.Context, id weir.StreamID) (s weir.Stream, err error) {
	got := described{id: id}
	_, err = c.do(ctx, &request{method: "GET", path: streamPath(id)}, &got)
	return got.Stream, err
}

// StreamChange describes a change of a stream. Zero fields keep the current value.
type StreamChange struct {
	Name             string `json:"name,omitempty"`
	RetentionSeconds int64  `json:"retention_seconds,omitempty"`
	MaxBytes         int64  `json:"max_bytes,omitempty"`
}

// UpdateStream changes the name or the limits of a stream and returns its new state. Batches that
// exceed the new limits are evicted at once.
func (c *Client) UpdateStream(ctx context.Context, id weir.StreamID, s StreamChange) (weir.Stream, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return weir.Stream{}, err
	}
	got := described{id: id}
	_, err = c.do(ctx, &request{method: "PATCH", path: streamPath(id), contentType: typeJSON, body: b}, &got)
	return got.Stream, err
}

// DeleteStream deletes a stream and all its batches. Subscriptions to the stream end.
func (c *Client) DeleteStream(ctx context.Context, id weir.StreamID) error {
	unsure, err := c.do(ctx, &request{method: "DELETE", path: streamPath(id)}, nil)
	if unsure && CodeOf(err) == weir.StreamNotFound {
		return nil // an earlier attempt has deleted the stream
	}
	return err
}

// CloseStream closes a stream for good and returns its state. The stream takes no more batches: the
// error of a publish has the code [weir.StreamClosed]. Subscribers receive everything that is stored,
// and then their subscriptions end. Closing a closed stream changes nothing.
func (c *Client) CloseStream(ctx context.Context, id weir.StreamID) (weir.Stream, error) {
	s := described{id: id}
	_, err := c.do(ctx, &request{method: "POST", path: streamPath(id) + "/close"}, &s)
	return s.Stream, err
}

// Cursor returns the highest sequence number of a stream and the time at which the batch with this
// number was stored.
func (c *Client) Cursor(ctx context.Context, id weir.StreamID) (cursor weir.Cursor, err error) {
	_, err = c.do(ctx, &request{method: "GET", path: streamPath(id) + "/cursor"}, (*position)(&cursor))
	return cursor, err
}

// position is a cursor object from a response. Its method check returns an error if the object has
// no time, because it is then not from Weir.
type position weir.Cursor

func (p *position) check(decoding error) error {
	if decoding == nil && p.UpdatedAt == 0 {
		return errors.New("it is not a cursor")
	}
	return decoding
}

// Health is the state of a service that accepts reads and writes.
type Health struct {
	Status string `json:"status"`   // "ok"
	Uptime int64  `json:"uptime_s"` // seconds
}

// Health checks whether the service accepts reads and writes. If the service does not, the error is
// an [*Error] with status 503. Health makes one attempt only.
func (c *Client) Health(ctx context.Context) (h Health, err error) {
	_, err = c.once(ctx, c.transport(), &request{method: "GET", path: "/v1/health"}, &h)
	return h, err
}

// Version identifies the build that a service runs.
type Version struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Built   weir.Time `json:"built"`
}

// Version returns the build that the service runs.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	_, err = c.do(ctx, &request{method: "GET", path: "/v1/version"}, &v)
	return v, err
}

func streamPath(id weir.StreamID) string { return "/v1/streams/" + url.PathEscape(string(id)) }
