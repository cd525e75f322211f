package durable

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
)

// Approximate limits, in bytes: chunk for the size of the response to a read, and liveChunk for the
// size of an event of a live read.
const (
	chunk     = 4 << 20
	liveChunk = 256 << 10
)

// read serves GET: it sends the data that is stored from an offset on, or waits for new data.
func (c *call) read() error {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return weir.Errorf(weir.InvalidRequest, "the query cannot be parsed")
	}
	t, ok, err := c.find(access.ReadStream)
	if !ok {
		return err
	}
	from, err := parseStart(q)
	if err != nil {
		return err
	}
	live := q.Get("live")
	if live != "" && live != "long-poll" && live != "sse" {
		return weir.Errorf(weir.InvalidRequest, "invalid live: send long-poll or sse")
	}
	if live != "" && !from.given {
		return weir.Errorf(weir.InvalidRequest, "a live read needs the parameter offset")
	}
	oldest, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	switch {
	case from.oldest:
		from.pos = oldest
	case from.now:
		from.pos = e.Tail
	}
	switch live {
	case "sse":
		return c.events(t, from.pos, q.Get("cursor"))
	case "long-poll":
		return c.poll(t, from, q.Get("cursor"))
	}
	return c.catchUp(t, from, "")
}

// catchUp sends what is stored from a position on.
func (c *call) catchUp(t target, from start, cursor string) error {
	k := content{json: t.isJSON()}
	defer k.release()
	reserve := func(bytes int) error {
		if err := c.Reserve(2 * bytes); err != nil { // half for the payloads, and half for the response
			return err
		}
		k.grow(bytes)
		return nil
	}
	e, err := t.Read(c.r.Context(), from.pos, chunk, reserve, k.add)
	if err != nil {
		return err
	}
	if e.Gone {
		return c.Refuse(http.StatusGone, weir.StreamNotFound, "the data at this offset was evicted or lost")
	}
	end := e.Next >= e.Tail
	c.Set("Stream-Next-Offset", offset(e.Next))
	if cursor != "" {
		c.Set("Stream-Cursor", cursor)
	}
	if end {
		c.Set("Stream-Up-To-Date", "true")
		if e.Ended {
			c.Set("Stream-Closed", "true")
		}
	}
	body := k.bytes()
	coding := c.Encode(len(body))
	if !from.now {
		tag := `"` + string(t.ID) + "." + number(int64(t.CreatedAt)) + ":" + offset(from.pos) + ":" + offset(e.Next)
		if end && e.Ended {
			tag += ":c"
		}
		if coding != "" { // a tag names the bytes that are sent, so each coding needs a tag of its own
			tag += ":" + coding
		}
		tag += `"`
		c.Set("ETag", tag)
		c.Cache("private, no-cache")
		c.Set("Vary", "Accept-Encoding") // also if this response is too short to be compressed
		if matchesTag(c.r.Header["If-None-Match"], tag) {
			return c.Send(http.StatusNotModified, "", nil)
		}
	}
	return c.Send(http.StatusOK, t.Type, body)
}

func matchesTag(values []string, tag string) bool {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}

// poll waits until there is data at the position, and sends it.
func (c *call) poll(t target, from start, cursor string) error {
	next := nextCursor(cursor)
	sub, err := t.Subscribe(c.r.Context(), hub.Head)
	if err != nil {
		return err
	}
	defer sub.Close()
	some := false
	err = c.Await(t.Stream, func(ctx context.Context) (err error) {
		some, err = sub.Await(ctx, from.pos, c.h.LongPoll)
		return err
	})
	if err != nil {
		return err
	}
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	if some && from.pos < e.Tail {
		from.now = false
		return c.catchUp(t, from, next)
	}
	c.Set("Stream-Up-To-Date", "true")
	c.Set("Stream-Cursor", next)
	c.Set("Stream-Next-Offset", offset(max(e.Tail, from.pos)))
	if e.Ended {
		c.Set("Stream-Closed", "true")
	}
	return c.Send(http.StatusNoContent, "", nil)
}

// A cursor is a number that a client repeats in its next poll, so that the URLs of its polls differ
// and a cache does not answer all of them with the same response. The cursor of a moment is the
// number of intervals of length cursorEvery since cursorEpoch.
const cursorEvery = 20 * time.Second

var cursorEpoch = time.Date(2024, 10, 9, 0, 0, 0, 0, time.UTC)

// nextCursor returns the cursor of this moment. If the client already has this cursor or a later
// one, nextCursor returns a cursor that is greater than the client's.
func nextCursor(client string) string {
	now := uint64(time.Since(cursorEpoch) / cursorEvery)
	if n, ok := natural(client); ok && n >= now {
		now = n + 1 + rand.Uint64N(180)
	}
	return number(now)
}

// lasts is how long an event stream stays open. Clients then reconnect and continue where they were.
const lasts = 60 * time.Second

// events sends the stored batches from a position on, and then new ones, as server-sent events.
func (c *call) events(t target, pos weir.Seq, cursor string) error {
	if !t.isText() {
		c.Set("Stream-SSE-Data-Encoding", "base64")
	}
	c.Cache("no-cache")
	return c.Stay(t.Stream, func(ctx context.Context, sub *hub.Subscription, out *api.Events) error {
		all, leave := c.h.audiences.join(t.Stream)
		defer leave()
		read := func() (*frame, error) { return t.frame(ctx, pos, out) }
		until, upToDate := time.Now().Add(lasts), false
		for {
			var f *frame
			var err error
			sub.Reached(pos)
			if upToDate {
				f, err = all.next(ctx, pos, read)
			} else {
				f, err = read()
			}
			var refused *weir.Error
			if err == nil && f.e.Gone || errors.As(err, &refused) && refused.Code == weir.Overloaded {
				return nil // the client reconnects, and gets 410 or waits for memory
			}
			if err != nil {
				return err
			}
			end := f.e.Next >= f.e.Tail
			if pos = f.e.Next; len(f.data) > 0 || !upToDate || end && f.e.Ended {
				if err := out.Send(f.data, control(pos, nextCursor(cursor), end, end && f.e.Ended)); err != nil {
					return err
				}
			}
			if end && f.e.Ended {
				return hub.ErrEnded
			}
			if upToDate = upToDate || end; !end {
				continue
			}
			some, err := sub.Await(ctx, pos, min(15*time.Second, time.Until(until)))
			if err != nil || time.Now().After(until) {
				return err
			}
			if !some {
				if err := out.Send([]byte(":\n\n")); err != nil {
					return err
				}
			}
		}
	})
}

// frame reads the frame that a live read gets at a position.
func (t *target) frame(ctx context.Context, pos weir.Seq, out *api.Events) (*frame, error) {
	k := content{json: t.isJSON()}
	defer k.release()
	reserve := func(bytes int) error {
		if err := out.Reserve(4 * bytes); err != nil { // for the payloads and for frames, which may be in base64
			return err
		}
		k.grow(bytes)
		return nil
	}
	e, err := t.Read(ctx, pos, liveChunk, reserve, k.add)
	f := &frame{from: pos, e: e}
	if err == nil && !k.empty() {
		f.data = event(t.attributes, k.bytes())
	}
	return f, err
}

// event returns a data event. A line break of any kind inside the data begins a new line of the
// event, so data can never end the event.
func event(a attributes, data []byte) []byte {
	b := []byte("event: data\n")
	if !a.isText() {
		b = append(b, "data:"...)
		b = base64.StdEncoding.AppendEncode(b, data)
		return append(b, "\n\n"...)
	}
	for {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			break
		}
		b = line(b, data[:i])
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
	return append(line(b, data), '\n')
}

// line appends one line of data. A reader drops one space after the colon, so a line that begins with
// a space needs a second space.
func line(b, data []byte) []byte {
	b = append(b, "data:"...)
	if len(data) > 0 && data[0] == ' ' {
		b = append(b, ' ')
	}
	return append(append(b, data...), '\n')
}

// control returns a control event, which tells the client its position in the stream.
func control(pos weir.Seq, cursor string, upToDate, closed bool) []byte {
	b := []byte("event: control\ndata:{\"streamNextOffset\":\"" + offset(pos) + `"`)
	switch {
	case closed:
		b = append(b, `,"streamClosed":true,"upToDate":true`...)
	case upToDate:
		b = append(b, `,"streamCursor":"`+cursor+`","upToDate":true`...)
	default:
		b = append(b, `,"streamCursor":"`+cursor+`"`...)
	}
	return append(b, "}\n\n"...)
}
