package contract

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Stream is the stream object.
type Stream struct {
	ID               string `json:"id"`
	Name             string `json:"name"`
	CreatedAt        string `json:"created_at"`
	RetentionSeconds int64  `json:"retention_seconds"`
	MaxBytes         int64  `json:"max_bytes"`
	Cursor           int64  `json:"cursor"`
	BytesStored      int64  `json:"bytes_stored"`
	Mode             string `json:"mode"`
	TTLSeconds       int64  `json:"ttl_seconds,omitempty"`
	Closed           bool   `json:"closed,omitempty"`
}

// Batch is the batch object of json streams.
type Batch struct {
	Seq    int64           `json:"seq"`
	TS     string          `json:"ts"`
	Events json.RawMessage `json:"events"`
}

// RawBatch is the batch object that subscribers of raw streams get (D16).
type RawBatch struct {
	Seq         int64  `json:"seq"`
	TS          string `json:"ts"`
	ContentType string `json:"content_type"`
	Data        []byte `json:"data"`
}

// Ack is the publish acknowledgement.
type Ack struct {
	StreamID  string `json:"stream_id"`
	Seq       int64  `json:"seq"`
	Accepted  int64  `json:"accepted"`
	Cursor    int64  `json:"cursor"`
	Duplicate bool   `json:"duplicate"`
}

// Cursor is the cursor object.
type Cursor struct {
	Cursor    int64  `json:"cursor"`
	UpdatedAt string `json:"updated_at"`
}

// Page is the list envelope.
type Page struct {
	Data       []Stream `json:"data"`
	HasMore    bool     `json:"has_more"`
	NextCursor *string  `json:"next_cursor"`
}

const (
	MiB       = 1 << 20
	BodyLimit = 8 * MiB
	reach     = 1024 // a published sequence may be at most this far above the cursor
)

// create creates a stream that is named after the test. The parameter members holds further members
// of the request's JSON object. The stream is deleted when the test ends.
func (t *T) create(members string) Stream {
	t.Helper()
	if members != "" {
		members = "," + members
	}
	return t.CreateBody(fmt.Sprintf(`{"name":%q%s}`, Shorten(t.Name()), members))
}

// CreateBody creates a stream from a JSON object. The stream is deleted when the test ends.
func (t *T) CreateBody(text string, options ...Option) Stream {
	t.Helper()
	var s Stream
	t.Post("/v1/streams", append([]Option{JSONBody(text)}, options...)...).Want(201).decode(&s)
	t.checkStream(s)
	t.Cleanup(func() { t.remove(s.ID) })
	return s
}

func (t *T) jsonStream() Stream { t.Helper(); return t.create("") }
func (t *T) rawStream() Stream  { t.Helper(); return t.create(`"mode":"raw"`) }

// remove deletes a stream. It ignores errors, since the stream or the server may not exist any
// more.
func (t *T) remove(id string) {
	ctx, cancel := contextWithTimeout()
	defer cancel()
	if resp, err := t.Try(ctx, "DELETE", "/v1/streams/"+id); err == nil {
		resp.Body.Close()
	}
}

// checkStream checks the format and range of a stream object's fields.
func (t *T) checkStream(s Stream) {
	t.Helper()
	if !streamID.MatchString(s.ID) {
		t.Errorf("id %q is not 22 base62 characters", s.ID)
	}
	t.checkTime(s.CreatedAt)
	if s.Mode != "json" && s.Mode != "raw" {
		t.Errorf("mode is %q", s.Mode)
	}
	if s.RetentionSeconds < 60 || s.RetentionSeconds > 2592000 || s.MaxBytes < MiB || s.MaxBytes > 4096*MiB {
		t.Errorf("retention_seconds or max_bytes is out of range: %+v", s)
	}
	if s.Cursor < 0 || s.BytesStored < 0 {
		t.Errorf("cursor or bytes_stored is negative: %+v", s)
	}
}

// checkTime checks the format of a timestamp, and that it is not in the future. Clocks may differ
// by a minute.
func (t *T) checkTime(text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	if err != nil || !timestamp.MatchString(text) {
		t.Errorf("timestamp %q is not RFC 3339 in UTC with milliseconds", text)
	}
	if time.Until(at) > time.Minute {
		t.Errorf("timestamp %s is in the future", text)
	}
	return at
}

// Stream gets and checks a stream object.
func (t *T) Stream(id string) Stream {
	t.Helper()
	var s Stream
	t.Get("/v1/streams/" + id).Want(200).decode(&s)
	t.checkStream(s)
	return s
}

// Cursor gets and checks a cursor object.
func (t *T) Cursor(id string) Cursor {
	t.Helper()
	var c Cursor
	t.Get("/v1/streams/" + id + "/cursor").Want(200).decode(&c)
	t.checkTime(c.UpdatedAt)
	return c
}

// Batch gets and checks a batch object of a json stream.
func (t *T) Batch(id string, seq int64) Batch {
	t.Helper()
	var b Batch
	t.Get(BatchPath(id, seq)).Want(200).decode(&b)
	t.checkTime(b.TS)
	if b.Seq != seq {
		t.Errorf("batch %d has seq %d", seq, b.Seq)
	}
	return b
}

// BatchPath is the path to read a batch.
func BatchPath(id string, seq int64) string { return fmt.Sprintf("/v1/streams/%s/batches/%d", id, seq) }

// SeqPath is the path to publish under a sequence.
func SeqPath(id string, seq int64) string { return fmt.Sprintf("/v1/streams/%s/%d", id, seq) }

// NextPath is the path to publish under the next sequence.
func NextPath(id string) string { return "/v1/streams/" + id + "/publish" }

// Publish publishes a JSON array of events under the next sequence. It fails the test if the server
// does not store them.
func (t *T) Publish(id, events string, options ...Option) Ack {
	t.Helper()
	return t.Ack(t.Post(NextPath(id), append([]Option{JSONBody(`{"events":` + events + `}`)}, options...)...).Want(202), id)
}

// PublishAt publishes a JSON array of events under a sequence. It fails the test if the server does
// not store them.
func (t *T) PublishAt(id string, seq int64, events string) Ack {
	t.Helper()
	k := t.Ack(t.Post(SeqPath(id, seq), JSONBody(`{"events":`+events+`}`)).Want(202), id)
	if k.Seq != seq {
		t.Errorf("published under %d, acknowledged as %d", seq, k.Seq)
	}
	return k
}

// Ack decodes and checks an acknowledgement.
func (t *T) Ack(a *Answer, id string) Ack {
	t.Helper()
	var k Ack
	a.decode(&k)
	if k.StreamID != id {
		t.Errorf("%s: stream_id is %s, want %s", a.request, k.StreamID, id)
	}
	return k
}

// same compares JSON values byte for byte, except for white space between tokens (D8).
func (t *T) same(got, want []byte) {
	t.Helper()
	var g, w bytes.Buffer
	if err := json.Compact(&g, got); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	if err := json.Compact(&w, want); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	if !bytes.Equal(g.Bytes(), w.Bytes()) {
		t.Errorf("the server changed the events:\n got %s\nwant %s", Shorten(g.String()), Shorten(w.String()))
	}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewID returns a random stream id.
func NewID() string {
	b := make([]byte, 22)
	rand.Read(b)
	for i := range b {
		b[i] = base62[b[i]%62]
	}
	return string(b)
}

// Filler returns n random bytes, which do not compress.
func Filler(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
