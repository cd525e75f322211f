package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/hub"
	"weir/internal/meter"
)

// counters are the statistics of a handler. There are several shards, and each request is counted
// in one of them, so that cores do not contend for cache lines.
type counters struct {
	shards        [meter.Shards]shard
	limited       [len(windowNames)]atomic.Uint64
	subscriptions atomic.Uint64
	refused       [len(refusalNames)]atomic.Uint64
	ended         [len(endNames)]atomic.Uint64
	panics        atomic.Uint64
	complained    atomic.Int64  // when complain() last logged a request, by the clock of meter.Now; 0 means never
	unsaid        atomic.Uint64 // refused requests since then, which complain() has not logged
}

type shard struct {
	requests  [len(methodNames)][len(routeNames)][len(statuses) + 1]atomic.Uint64
	received  atomic.Uint64
	sent      atomic.Uint64
	publishes meter.Histogram
	_         meter.Pad
}

// other is the label of all unknown methods and routes in the metrics. Clients can invent any
// number of them, so they must not become labels themselves.
const other = "other"

// methodNames are the methods that are counted separately.
var methodNames = [...]string{other, "GET", "HEAD", "POST", "DELETE", "OPTIONS", "PATCH", "PUT"}

// MethodName returns the name of a method in metrics and logs. It is "other" if the API does not
// use the method.
func MethodName(method string) string { return methodNames[methodPlace(method)] }

func methodPlace(method string) int {
	switch method { // faster than searching methodNames
	case http.MethodPost:
		return 3
	case http.MethodGet:
		return 1
	case http.MethodHead:
		return 2
	case http.MethodDelete:
		return 4
	case http.MethodOptions:
		return 5
	case http.MethodPatch:
		return 6
	case http.MethodPut:
		return 7
	}
	return 0
}

// statuses are the statuses that the API sends, and those that other packages send through it
// (visit.go). A test compares them with the table of faults.
var statuses = [...]int{200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 429, 431, 500, 503}

// statusPlace maps a status to its index in statuses. It maps unknown statuses to the index after
// the last one.
var statusPlace = func() (places [600]uint8) {
	for i := range places {
		places[i] = uint8(len(statuses))
	}
	for i, s := range statuses {
		places[s] = uint8(i)
	}
	return places
}()

// windowNames are the kinds of rate windows (D23), as metrics name them.
var windowNames = [...]string{"live", "test", "demo", "anonymous"}

func windowOf(g *access.Grant) int {
	switch {
	case g == nil:
		return 3
	case g.Demo():
		return 2
	case g.Kind() == access.Live, g.Kind() == access.Management:
		return 0
	}
	return 1
}

// end is the reason why a subscription ended.
type end uint8

const (
	endClient    end = iota // the client disconnected
	endSlow                 // the client accepted too little: see writer and budget.Loan (D17, D34)
	endDeleted              // the stream was deleted, or expired
	endClosed               // the stream was closed, and everything was sent (D37)
	endRevoked              // the key was revoked (D18)
	endStopping             // the server is shutting down
	endFailed               // reading the store failed
	endReconnect            // the server ended the subscription, so that the client reconnects (visit.go)
	endOperator             // the operator ended the subscription
)

var endNames = [...]string{"client", "slow", "stream_deleted", "stream_closed", "key_revoked", "stopping", "failed", "reconnect", "operator"}

// refusalNames are the reasons why subscriptions are refused: the server has reached its limit, or
// the caller already holds its share (D34).
var refusalNames = [...]string{"full", "share"}

// whyEnded returns the reason why a subscription ended, given the error that ended it.
func (s *subscriber) whyEnded(err error, w *writer) end {
	why := endOf(s.ended, err)
	switch {
	case why == endRevoked:
	case w.loan.IsCut():
		why = endSlow
	case err == nil:
		why = endReconnect
	case why == endClient && w.ended.Err() == nil && !w.broken:
		why = endFailed
	}
	return why
}

// endOf returns the reason why a subscription ended, given the channel that is closed when its key
// is revoked, and the error that ended the subscription. An error that endOf does not know means
// that the client is gone.
func endOf(revoked <-chan struct{}, err error) end {
	select {
	case <-revoked:
		return endRevoked
	default:
	}
	switch {
	case errors.Is(err, hub.ErrDeleted), errors.Is(err, hub.ErrExpired):
		return endDeleted
	case errors.Is(err, hub.ErrEnded):
		return endClosed
	case errors.Is(err, hub.ErrStopping):
		return endStopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endSlow
	}
	return endClient
}

// count counts the call, and logs it at level debug. It logs neither the path nor header fields,
// because clients sometimes put keys there.
func (c *call) count() {
	s := &c.h.counts.shards[c.id[len(c.id)-1]%meter.Shards]
	place := uint8(len(statuses))
	if c.status >= 0 && c.status < len(statusPlace) {
		place = statusPlace[c.status]
	}
	s.requests[methodPlace(c.r.Method)][c.route.kind][place].Add(1)
	if c.received > 0 {
		s.received.Add(uint64(c.received))
	}
	if c.written > 0 {
		s.sent.Add(uint64(c.written))
	}
	kind := c.route.kind
	stored := (kind == nextRoute || kind == atRoute) && (c.status == http.StatusAccepted || c.status == http.StatusOK)
	took := int64(0)
	if c.window.At != 0 { // At is 0 if the request panicked before its rate window was known
		took = meter.Now() - c.window.At
		c.h.requests.note(c, took)
	}
	if stored {
		s.publishes.Observe(&meter.Latencies, took, 1)
	}
	if c.grant != nil && c.grant.KeyID() != "" {
		c.grant.Count(c.work())
	}
	if c.h.Logger.Enabled(context.Background(), slog.LevelDebug) {
		key := ""
		if c.grant != nil {
			key = c.grant.KeyID()
		}
		c.h.Logger.Debug("request", "request_id", string(c.id[:]), "method", MethodName(c.r.Method),
			"route", kind.String(), "status", c.status, "duration", time.Duration(took), "received", c.received,
			"sent", c.written, "key_id", key, "client", c.client(), "protocol", c.r.Proto)
	}
}

// work describes the call for the figures of its key.
func (c *call) work() access.Work {
	w := access.Work{Requests: 1, Bytes: uint64(max(c.received, 0))}
	switch kind := c.route.kind; {
	case c.status >= 400:
		w.Refused = 1
	case (kind == nextRoute || kind == atRoute) && c.status == http.StatusAccepted,
		c.stored:
		w.Batches = 1
	}
	return w
}

// complainEvery is the minimum time between two log lines of complain. Without this limit, every
// publish to a full disk would write a line, and the log would fill another disk.
const complainEvery = int64(time.Second)

// complain logs a request that was refused because of a problem of the server. It logs at most one
// request per complainEvery. The attribute unsaid is the number of such requests that were not
// logged.
func (c *call) complain(status int, code string) {
	n, now := &c.h.counts, meter.Now()
	last := n.complained.Load()
	if last != 0 && now-last < complainEvery || !n.complained.CompareAndSwap(last, now|1) {
		n.unsaid.Add(1)
		return
	}
	c.h.Logger.Warn("request refused", "request_id", string(c.id[:]), "method", MethodName(c.r.Method),
		"route", c.route.kind.String(), "status", status, "code", code, "unsaid", n.unsaid.Swap(0))
}

// Stats are the statistics of a handler since its start.
type Stats struct {
	Requests      []Requests         // counts by method, route and status, without those that are 0
	Received      uint64             // bytes of request bodies
	Sent          uint64             // bytes of response bodies, without subscriptions
	Publishes     meter.Distribution // duration of acknowledged publishes, in nanoseconds
	Limited       map[string]uint64  // requests refused with 429, by kind of rate window
	Subscribers   int                // open subscriptions
	Places        int                // limit of open subscriptions
	Refused       map[string]uint64  // subscriptions that were refused because of a limit, by reason
	Subscriptions uint64             // subscriptions that were started
	Ended         map[string]uint64  // subscriptions that ended, by reason
	Panics        uint64
	Bodies        budget.Stats // memory of request bodies
	Batches       budget.Stats // memory of batches that are being sent to clients
}

// Requests is the number of requests with the same method, route and status. Method and Route are
// "other" if the API does not know them. Status is 0 if the client disconnected before the
// response.
type Requests struct {
	Method, Route string
	Status        int
	Count         uint64
}

// Stats returns the current statistics. A request that is in progress may already be in some of the
// counters and not in others.
func (h *Handler) Stats() Stats {
	n := &h.counts
	s := Stats{
		Subscribers: h.Subscribers(), Subscriptions: n.subscriptions.Load(), Panics: n.panics.Load(),
		Places: h.MaxSubscribers, Refused: map[string]uint64{},
		Limited: map[string]uint64{}, Ended: map[string]uint64{}, Bodies: h.Bodies.Stats(), Batches: h.Batches.Stats(),
	}
	for i, name := range windowNames {
		s.Limited[name] = n.limited[i].Load()
	}
	for i, name := range refusalNames {
		s.Refused[name] = n.refused[i].Load()
	}
	for i, name := range endNames {
		s.Ended[name] = n.ended[i].Load()
	}
	for i := range n.shards {
		s.Received += n.shards[i].received.Load()
		s.Sent += n.shards[i].sent.Load()
		s.Publishes.Add(&n.shards[i].publishes)
	}
	for m, method := range methodNames {
		for r, route := range routeNames {
			for p := range len(statuses) + 1 {
				count := uint64(0)
				for i := range n.shards {
					count += n.shards[i].requests[m][r][p].Load()
				}
				if count > 0 {
					s.Requests = append(s.Requests, requests(method, route, p, count))
				}
			}
		}
	}
	return s
}

func requests(method, route string, place int, count uint64) Requests {
	r := Requests{method, route, 0, count}
	if route == noRoute.String() {
		r.Route = other
	}
	if place < len(statuses) {
		r.Status = statuses[place]
	}
	return r
}
