package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/hub"
)

// errPlaces refuses a subscription because its key, project or address already has its share of
// places. A place is the right to one open subscription. The number of places is limited.
var errPlaces = &weir.Error{Code: weir.RateLimited, Message: "this key, project or address has too many open subscriptions, and the remaining places are reserved for others; close subscriptions that you do not need, or retry after the number of seconds in retry-after"}

// subscribe serves GET /v1/streams/{id} to clients that accept text/event-stream. It sends every
// batch from the requested start on, once and in order, for as long as the client stays connected
// (D15 to D18).
//
// subscribe refuses the same requests as streamShow, and also the following:
//
//   - an invalid start (400 invalid_request_error)
//   - a caller that already has its share of places, when few places are left (429 rate_limited,
//     D34)
//   - any caller when no place is left (503 overloaded)
//
// A subscription ends in these cases:
//
//   - The stream is deleted, or its lifetime has ended. The client gets an end event first.
//   - The stream is closed, and the client has received all its batches. It then gets an end event.
//   - The key is revoked.
//   - The operator ends the subscription on the dashboard.
//   - The server stops. The client gets a retry field with a random delay first, so that clients do
//     not all reconnect at once.
//   - The client accepts no data for the length of the write timeout.
//
// An idle subscription uses no buffer: subscribers share frames, and the method send returns its
// buffer to a pool. On a connection of an event loop, an idle subscription does not even use a
// goroutine (see parked.go).
func (c *call) subscribe(s *hub.Stream) error {
	from, err := c.start()
	if err != nil {
		return err
	}
	c.ended = c.grant.Ended()
	c.zips = preferred(c.r.Header["Accept-Encoding"], gzipCoding) == gzipCoding
	head := func() {
		c.w.Header()["Vary"] = varyEncoding
		c.head(http.StatusOK, typeStream, none, none)
	}
	return c.stay(s, from, head, func(s *subscriber, w *writer) error {
		s.parks = s.sub.CanPark()
		return s.begin(w)
	})
}

// stay begins the response and sends events until the subscription ends, for example because
// c.ended is closed. The function head sends the header of the response, and the function follow
// sends the events and returns the error that ended the subscription, or errParked.
func (c *call) stay(stream *hub.Stream, from hub.From, head func(), follow func(*subscriber, *writer) error) error {
	client := c.client()
	if err := c.takePlace(holderOf(c.grant, client), access.Network(client)); err != nil {
		return err
	}
	s := &subscriber{h: c.h, ended: c.ended}
	defer func() {
		if !c.parked {
			s.close()
		}
	}()
	if c.r.ProtoMajor >= 2 {
		c.r.Body.Close() // otherwise the server would buffer the data that the client sends
	}
	w := c.writer()
	_ = w.control.SetReadDeadline(time.Time{}) // the request's deadline would end the subscription
	ctx, cancel := context.WithCancel(c.r.Context())
	w.ended = ctx
	s.ender.cancel, s.ender.control, s.ender.of = cancel, w.control, c.listener(stream)
	c.h.open.add(c.ended, &s.ender)

	var err error
	s.sub, err = stream.Subscribe(ctx, from)
	if err != nil {
		return err
	}
	c.h.open.begun(&s.ender, s.sub)
	c.h.counts.subscriptions.Add(1)
	c.w.Header()["X-Accel-Buffering"] = noBuffering
	if c.zips {
		c.w.Header()["Content-Encoding"] = gzipEncoding
		s.zip = s.sub.Compress()
		w.zip = s.zip
	}
	head()
	if err = follow(s, &w); errors.Is(err, errParked) {
		c.parked = true
		return nil
	}
	s.count(s.whyEnded(err, &w))
	if c.later != nil { // it ended before it was parked; over HTTP/1.1 its connection is closed (D18)
		c.failure = err
	}
	return nil
}

// takePlace takes a place for a subscription or a long poll. The caller must give it back.
func (c *call) takePlace(of budget.Holder, at netip.Addr) error {
	err := c.h.places.Take(of, at)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, budget.ErrFull):
		c.h.counts.refused[0].Add(1)
		return c.h.full
	}
	c.h.counts.refused[1].Add(1)
	return errPlaces
}

// begin sends the first frame and then events, like follow. If an event loop can continue the
// response (see parked.go), begin leaves everything after the first frame to the loop.
func (s *subscriber) begin(w *writer) error {
	if err := w.begin(helloFrame(s.sub.Position())); err != nil {
		return err
	}
	if s.leave(w) {
		return errParked
	}
	s.charge(w)
	return s.follow(w)
}

// charge charges the caller for the memory of large frames.
func (s *subscriber) charge(w *writer) {
	w.loan = s.sub.ChargeTo(s.holder(), s.ender.end)
	w.loan.Watch(true)
}

// follow sends events until the subscription ends, and returns the error that ended it. If it parks
// the subscription, it returns errParked.
func (s *subscriber) follow(w *writer) error {
	for {
		event, err := s.sub.Next(w.ended, s.h.Heartbeat) // while it waits, Next borrows no memory
		switch {
		case err == nil && event.Gap != nil:
			err = w.send(w.packed(gapFrame(event.Gap)))
		case err == nil && event.Sole:
			if err = w.release(&event.Frames[0]); err == nil {
				err = w.flush()
			}
		case err == nil && len(event.Frames) > 0:
			err = w.send(event.Frames...)
		case err == nil:
			err = w.send(w.packed(heartbeatFrame))
		default:
			if frame := endFrame(err); frame != nil {
				_ = w.end(frame)
			} else if w.ended.Err() == nil {
				s.h.Logger.Error("subscription failed", "request_id", string(s.ender.of.id[:]), "error", err)
			}
		}
		if err != nil {
			return err
		}
		if s.park(w) {
			return errParked
		}
	}
}

// endFrame returns the last frame of a subscription that ends with this error of the hub. It returns
// nil if the error is not an orderly end.
func endFrame(err error) []byte {
	switch {
	case errors.Is(err, hub.ErrDeleted):
		return deletedFrame
	case errors.Is(err, hub.ErrExpired):
		return expiredFrame
	case errors.Is(err, hub.ErrEnded):
		return closedFrame
	case errors.Is(err, hub.ErrStopping):
		return retryFrame(500 + int(weir.Jitter(4500*time.Millisecond)/time.Millisecond))
	}
	return nil
}

// gathered is a pool of buffers for send(), which combines small frames into one write.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, 24<<10); return &b }}

// send writes frames and flushes them. It combines small frames into one write, because every write
// costs the overhead of a chunk (HTTP/1.1) or of a DATA frame (HTTP/2).
func (w *writer) send(frames ...[]byte) error {
	if len(frames) == 1 {
		if err := w.write(frames[0]); err != nil {
			return err
		}
		return w.flush()
	}
	p := gathered.Get().(*[]byte)
	defer gathered.Put(p)
	b := (*p)[:0]
	for _, f := range frames {
		if len(b)+len(f) > cap(b) {
			if err := w.write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		if len(f) > cap(b) {
			if err := w.write(f); err != nil {
				return err
			}
			continue
		}
		b = append(b, f...)
	}
	if err := w.write(b); err != nil {
		return err
	}
	return w.flush()
}

// start returns the position at which the client wants to start (D15, D35). The header field
// Last-Event-ID takes precedence over the query. A browser that reconnects repeats the URL with its
// original cursor, and only the header field says how far the browser got.
func (c *call) start() (hub.From, error) {
	if values := c.r.Header["Last-Event-Id"]; len(values) > 1 {
		return hub.From{}, errLastEventID
	} else if len(values) == 1 && values[0] != "" {
		seq, err := weir.ParseSeq(values[0])
		if err != nil {
			return hub.From{}, errLastEventID
		}
		return hub.After(seq), nil
	}
	value, given, ok := queryParameter(c.r.URL.RawQuery, "cursor")
	switch {
	case !given:
		return hub.Head, nil
	case !ok:
		return hub.From{}, errStart
	case value == "head":
		return hub.Head, nil
	case value == "0":
		return hub.Oldest, nil
	}
	seq, err := weir.ParseSeq(value)
	if err != nil {
		return hub.From{}, errStart
	}
	return hub.After(seq), nil
}

var (
	errLastEventID = &weir.Error{Code: weir.InvalidRequest, Message: "invalid Last-Event-ID: send one header field with the id of an event of this stream, which is a sequence number"}
	errStart       = &weir.Error{Code: weir.InvalidRequest, Message: `invalid cursor: send it once, as "head", 0 or a sequence number`}
)
