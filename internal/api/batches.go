package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// batches serves GET /v1/streams/{id}/batches. It sends a page of batches, in increasing order of
// sequence (D37). With the parameter wait it is a long poll: if there is no batch, it waits for
// one. A HEAD request never waits.
//
// batches refuses the same requests as streamShow, and parameters that are malformed, repeated or
// out of range (400 invalid_request_error). While a request waits, it counts as a subscription, so
// it is refused if a limit of subscriptions is reached (429, 503). If the key is revoked meanwhile,
// the response is 401 (D18).
//
// A long page is read and sent in runs of about pageRun bytes, so it needs little memory. It can
// end after any batch. If a later run cannot be read, for example because its batches were evicted
// or no memory is free, the page ends before that run. The request for the next page then reports
// the reason.
func (c *call) batches() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	q, wait, err := parseBatches(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	until := time.Now().Add(wait) // the client counts from its request, and opening the log may take time
	page, err := s.Page(c.r.Context(), q)
	if err != nil {
		return err
	}
	defer page.Close()
	return c.sendPage(s.Mode, page, func() error {
		left := time.Until(until)
		if left <= 0 || !page.IsEmpty() || c.isHead() {
			return nil
		}
		return c.await(s, func(ctx context.Context) error { return page.Wait(ctx, left) })
	})
}

// await calls the function wait, which waits for something to happen to the stream. Meanwhile the
// request counts as a subscription (D34). The wait also ends when the client leaves or its key is
// revoked.
func (c *call) await(s *hub.Stream, wait func(context.Context) error) error {
	of, at := c.holder(), access.Network(c.client())
	if err := c.takePlace(of, at); err != nil {
		return err
	}
	defer c.h.places.Give(of, at)
	// The deadline for receiving the request must not end the wait.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	c.ended = c.grant.Ended()
	ender := &ender{cancel: cancel, of: c.listener(s)}
	c.h.open.add(c.ended, ender)
	defer c.h.open.remove(c.ended, ender)

	err := wait(ctx)
	select {
	case <-c.ended:
		_, err := c.h.Access.Authenticate(c.r.Header["Authorization"])
		return err
	default:
	}
	switch {
	case c.r.Context().Err() != nil:
		return c.r.Context().Err()
	case c.h.Lease != nil && c.h.Lease() != nil:
		return errCutOff
	case errors.Is(err, hub.ErrDeleted) || errors.Is(err, hub.ErrExpired):
		_, err := s.Object(c.r.Context())
		return err
	case errors.Is(err, hub.ErrStopping) || ctx.Err() != nil:
		return nil // the page is empty, and the client asks again
	}
	return err
}

// pageRun is the approximate number of payload bytes that sendPage reads at a time.
const pageRun = 64 << 10

// sendPage sends a page. It reads the first run before the response begins, so that it can still
// refuse the request. If the page is complete by then, the response has a Content-Length. The
// function wait waits for a batch if the page is empty and the request may still wait.
func (c *call) sendPage(mode weir.Mode, page *hub.Page, wait func() error) error {
	err := wait() // before a buffer is taken, so that hardly any request holds one while it waits
	p := buffers.Get().(*[]byte)
	b := append(*p, `{"batches":[`...)
	for page.Count() == 0 && !page.IsDone() && err == nil { // repeats if the run was evicted while it was read
		if b, err = c.readRun(b, mode, page); err == nil {
			err = wait() // waits only if all batches of the page were evicted while they were read
		}
	}
	if err != nil {
		putBuffer(p, b)
		return err
	}
	if page.IsDone() {
		b = appendPageEnd(b, page)
		err = c.answer(http.StatusOK, b)
		putBuffer(p, b)
		return err
	}
	w := c.writer()
	// More runs follow, so the page is longer than pageRun.
	w.packer = c.newPacker(c.choose(max(len(b), pageRun+1)))
	c.head(http.StatusOK, typeJSON, none, none)
	if c.isHead() {
		return nil
	}
	w.loan, w.encoder = c.loan, c.encoder
	w.loan.Watch(true)
	w.encoder.Watch(true)
	for err == nil && !page.IsDone() {
		c.sendRun(&w, &b)
		b, err = c.readRun(b[:0], mode, page)
		w.loan = c.loan
	}
	b = appendPageEnd(b, page)
	c.sendRun(&w, &b)
	if w.packer != nil && w.endPacked() != nil {
		panic(http.ErrAbortHandler)
	}
	_ = w.disarm()
	return nil
}

// readRun reads the next run of a page, borrows the memory for it, and appends the batches to b.
func (c *call) readRun(b []byte, mode weir.Mode, page *hub.Page) ([]byte, error) {
	if bytes := page.Plan(pageRun); bytes > unlent {
		// The loan is for the payloads in the store's buffer, and for their encoded form in b.
		if err := c.borrowToSend(int64(bytes + hub.EncodedSize(mode, bytes))); err != nil {
			return b, err
		}
	}
	count := page.Count()
	return page.Read(c.r.Context(), b, func(b []byte, batch *weir.Batch) []byte {
		if count > 0 {
			b = append(b, ',')
		}
		count++
		return appendBatch(b, mode, batch)
	})
}

// reserve calls borrowToSend, unless this number of bytes is so small that a call needs no loan for
// them.
func (c *call) reserve(bytes int) error {
	if bytes <= unlent {
		return nil
	}
	return c.borrowToSend(int64(bytes))
}

// borrowToSend sets the size of the memory that the call has borrowed. The memory is for the part
// of the response that is read next.
func (c *call) borrowToSend(size int64) error {
	if c.loan == nil {
		control := http.NewResponseController(c.w)
		c.loan = c.h.Batches.Open(c.holder(), -1, func() { _ = control.SetWriteDeadline(longAgo) })
	}
	c.loan.Shrink(size)
	return c.borrow(size)
}

// sendRun sends a part of the response. If the client does not accept it, sendRun cuts the response
// off, so that no client takes half a page for a whole one.
func (c *call) sendRun(w *writer, b *[]byte) {
	c.written += int64(len(*b))
	var err error
	switch {
	case w.packer != nil:
		err = w.writePacked(*b)
	case len(*b) > 2*piece:
		err = w.release(b)
	default:
		err = w.write(*b)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if cap(*b) > 4*piece {
		*b = nil // the buffer is large: do not hold it while the next run is read
	}
}

// appendPageEnd appends the JSON members that follow the batches of a page.
func appendPageEnd(b []byte, page *hub.Page) []byte {
	b = appendSeq(append(b, `],"next":`...), page.Next())
	b = appendSeq(append(b, `,"cursor":`...), page.Cursor())
	if page.Gap != nil {
		b = appendGap(append(b, `,"gap":`...), page.Gap)
	}
	if page.IsLast() {
		b = append(b, `,"closed":true`...)
	}
	return append(b, '}')
}

// parseBatches parses the parameters of a page (D35, D37).
func parseBatches(query string) (q hub.PageQuery, wait time.Duration, err error) {
	q = hub.PageQuery{From: hub.Oldest, Limit: weir.DefaultBatches, Bytes: weir.MaxPageBytes}
	from, isFrom, ok := queryParameter(query, "from")
	if isFrom {
		if q.From, err = parseFrom(from); !ok || err != nil {
			return q, 0, errFrom
		}
	}
	last, isLast, ok := queryParameter(query, "last")
	if isLast {
		if q.Last, err = parseCount(last, 1, weir.MaxBatches); !ok || err != nil {
			return q, 0, errLast
		}
		q.Limit = q.Last
	}
	since, isSince, ok := queryParameter(query, "since")
	if isSince {
		if q.Since, err = parseSince(since); !ok || err != nil {
			return q, 0, errSince
		}
	}
	if isFrom && isLast || isFrom && isSince || isLast && isSince {
		return q, 0, errStarts
	}
	if value, given, ok := queryParameter(query, "limit"); given {
		if q.Limit, err = parseCount(value, 1, weir.MaxBatches); !ok || err != nil {
			return q, 0, errBatchLimit
		}
	}
	if value, given, ok := queryParameter(query, "wait"); given {
		seconds, err := parseCount(value, 0, weir.MaxPageWait)
		if !ok || err != nil {
			return q, 0, errWait
		}
		wait = time.Duration(seconds) * time.Second
	}
	return q, wait, nil
}

// parseFrom parses the first sequence of a page.
func parseFrom(value string) (hub.From, error) {
	if value == "head" {
		return hub.Head, nil
	}
	n, err := weir.ParseSeq(value)
	if err != nil || n == 0 {
		return hub.Oldest, err
	}
	return hub.After(n - 1), nil
}

// parseCount parses an integer from low to high. The integer must have the same decimal form as a
// sequence.
func parseCount(value string, low, high weir.Seq) (int, error) {
	n, err := weir.ParseSeq(value)
	if err == nil && (n < low || n > high) {
		err = weir.ErrSeq
	}
	return int(n), err
}

// parseSince parses an RFC 3339 time. It rounds up to the millisecond, the precision of the times
// of batches. A time that is rounded down would include batches whose time is before the given
// time.
func parseSince(value string) (weir.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, value)
	return weir.TimeOf(t.Add(time.Millisecond - 1)), err
}

var (
	errFrom       = &weir.Error{Code: weir.InvalidRequest, Message: `invalid from: send it once, as "head", 0 or a sequence number`}
	errLast       = &weir.Error{Code: weir.InvalidRequest, Message: "invalid last: send it once, as an integer from 1 to 1000"}
	errSince      = &weir.Error{Code: weir.InvalidRequest, Message: "invalid since: send it once, as an RFC 3339 timestamp such as 2026-11-15T00:00:00Z, with a plus sign as %2B"}
	errStarts     = &weir.Error{Code: weir.InvalidRequest, Message: "from, last and since exclude each other: send at most one of them"}
	errBatchLimit = &weir.Error{Code: weir.InvalidRequest, Message: "invalid limit: send it once, as an integer from 1 to 1000"}
	errWait       = &weir.Error{Code: weir.InvalidRequest, Message: "invalid wait: send it once, as a whole number of seconds from 0 to 30"}
)
