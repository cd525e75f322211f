package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"weir"
	"weir/internal/hub"
)

var (
	errFrom        = &weir.Error{Code: weir.InvalidRequest, Message: `cursor must be "head", 0 or a sequence`}
	errLastEventID = &weir.Error{Code: weir.InvalidRequest, Message: "Last-Event-ID must be the id of an event of this stream: a sequence"}
	errStopping    = &weir.Error{Code: weir.Overloaded, Message: "this server is shutting down"}
	errSubscribers = &weir.Error{Code: weir.Overloaded, Message: "this server has as many open subscriptions as it may have"}
)

// subscribe answers GET /v1/streams/{id} to who accepts text/event-stream: every batch from the wanted start on, once and
// in order, for as long as the client stays (D15 to D18). It refuses what streamShow refuses, a start that is none (400
// invalid_request_error), and more subscriptions than the server may have open (503 overloaded). It ends when the stream
// is deleted (after an end event), the key is revoked, the server stops (after a retry that spreads the clients out), or
// the client takes nothing for the length of the write timeout.
//
// An idle subscription holds no buffer: frames are shared, and what is gathered into one write is given back after it.
func (c *call) subscribe(s *hub.Stream) error {
	from, err := c.from()
	if err != nil {
		return err
	}
	c.ended = c.grant.Ended()
	return c.stay(s, from, func() { c.head(http.StatusOK, typeStream, none, none) })
}

// stay begins the answer and sends what comes, for as long as c.ended is open and nothing else ends it.
func (c *call) stay(s *hub.Stream, from hub.From, head func()) error {
	if c.h.subscribers.Add(1) > int64(c.h.MaxSubscribers) {
		c.h.subscribers.Add(-1)
		return errSubscribers
	}
	defer c.h.subscribers.Add(-1)

	if c.r.ProtoMajor >= 2 {
		c.r.Body.Close() // what comes on a stream whose body nobody reads would be kept
	}
	w := c.writer()
	_ = w.control.SetReadDeadline(time.Time{}) // a deadline for the request would end the subscription
	ctx, cancel := context.WithCancel(c.r.Context())
	w.ended = ctx
	ender := &ender{cancel: cancel, control: w.control}
	c.h.ends.add(c.ended, ender)
	defer c.h.ends.remove(c.ended, ender)
	defer cancel()

	sub, err := s.Subscribe(ctx, from)
	if errors.Is(err, hub.ErrStopping) {
		return errStopping
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	c.h.counts.subscriptions.Add(1)
	c.w.Header()["X-Accel-Buffering"] = noBuffering
	head()
	if err = w.send(helloFrame); err == nil {
		err = c.follow(sub, &w)
	}
	c.h.counts.ended[c.whyEnded(err, &w)].Add(1)
	return nil
}

// follow sends what comes until it is over, and returns what ended it.
func (c *call) follow(sub *hub.Subscription, w *writer) error {
	for {
		event, err := sub.Next(w.ended, c.h.Heartbeat)
		switch {
		case err == nil && event.Gap != nil:
			err = w.send(gapFrame(event.Gap))
		case err == nil && len(event.Frames) > 0:
			err = w.send(event.Frames...)
		case err == nil:
			err = w.send(heartbeatFrame)
		case errors.Is(err, hub.ErrDeleted):
			_ = w.send(endFrame)
		case errors.Is(err, hub.ErrStopping):
			_ = w.send(retryFrame(500 + rand.IntN(4501)))
		case w.ended.Err() == nil:
			c.h.Logger.Error("subscription failed", "request_id", string(c.id[:]), "error", err)
		}
		if err != nil {
			return err
		}
	}
}

// gathered is memory for a few frames on their way into one write.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, 24<<10); return &b }}

// send writes frames and flushes them. Small ones are gathered, since a thousand frames in a thousand writes would cost a
// thousand chunks.
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

// from is where the client wants to begin (D15). Last-Event-ID comes first: browsers repeat the address with every
// reconnect, and only the header field knows how far they got.
func (c *call) from() (hub.From, error) {
	if values := c.r.Header["Last-Event-Id"]; len(values) > 1 {
		return hub.From{}, errLastEventID
	} else if len(values) == 1 && values[0] != "" {
		seq, err := weir.ParseSeq(values[0])
		if err != nil {
			return hub.From{}, errLastEventID
		}
		return hub.After(seq), nil
	}
	values, ok := c.r.URL.Query()["cursor"]
	switch {
	case !ok:
		return hub.Head, nil
	case len(values) != 1:
		return hub.From{}, errFrom
	case values[0] == "head":
		return hub.Head, nil
	case values[0] == "0":
		return hub.Oldest, nil
	}
	seq, err := weir.ParseSeq(values[0])
	if err != nil {
		return hub.From{}, errFrom
	}
	return hub.After(seq), nil
}
