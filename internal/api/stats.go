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
	"weir/internal/hub"
	"weir/internal/meter"
)

// counters are what the interface counts of its own work. A request touches one shard, and in it a few words.
type counters struct {
	shards        [meter.Shards]shard
	limited       [len(windowNames)]atomic.Uint64
	subscriptions atomic.Uint64
	ended         [len(endNames)]atomic.Uint64
	panics        atomic.Uint64
	complained    atomic.Int64 // when a problem was logged last, by meter.Now; 0: never
	unsaid        atomic.Uint64
}

type shard struct {
	requests  [len(methodNames)][len(routeNames)][len(statuses) + 1]atomic.Uint64
	received  atomic.Uint64
	sent      atomic.Uint64
	publishes meter.Histogram
	_         meter.Pad
}

// other is what all methods, routes and statuses together are called that are not ours: anybody can make them up.
const other = "other"

// methodNames are the methods that are told apart.
var methodNames = [...]string{other, "GET", "HEAD", "POST", "DELETE", "OPTIONS"}

// MethodName is what a method is called in figures and logs.
func MethodName(method string) string { return methodNames[methodPlace(method)] }

func methodPlace(method string) int {
	switch method { // which is quicker than a search
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
	}
	return 0
}

// statuses are those that the interface answers with; a test holds them to the table of errors.
var statuses = [...]int{200, 201, 202, 204, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503}

// statusPlace finds the place of a status; that of all others is the last.
var statusPlace = func() (places [600]uint8) {
	for i := range places {
		places[i] = uint8(len(statuses))
	}
	for i, s := range statuses {
		places[s] = uint8(i)
	}
	return places
}()

// windowNames are whose requests are refused when a rate window is used up (D23).
var windowNames = [...]string{"live", "test", "demo", "anonymous"}

func windowOf(g *access.Grant) int {
	switch {
	case g == nil:
		return 3
	case g.Demo():
		return 2
	case g.Kind() == access.Live:
		return 0
	}
	return 1
}

// end is why a subscription ended.
type end int

const (
	endClient   end = iota // the client went away
	endSlow                // it took nothing for the length of the write timeout (D17)
	endDeleted             // the stream was deleted
	endRevoked             // the key was revoked (D18)
	endStopping            // the server stops
	endFailed              // the store could not be read
)

var endNames = [...]string{"client", "slow", "stream_deleted", "key_revoked", "stopping", "failed"}

// whyEnded tells by the error that ended a subscription why it is over.
func (c *call) whyEnded(err error, w *writer) end {
	select {
	case <-c.ended:
		return endRevoked
	default:
	}
	switch {
	case errors.Is(err, hub.ErrDeleted):
		return endDeleted
	case errors.Is(err, hub.ErrStopping):
		return endStopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endSlow
	case w.ended.Err() == nil:
		return endFailed
	}
	return endClient
}

// count counts the call, and logs it where everything is logged. Neither a path nor a header field is: people put keys
// into all sorts of places.
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
	if c.window.At != 0 { // it was counted; the page of errors is not
		took = meter.Now() - c.window.At
		c.h.requests.note(c, took)
	}
	if stored {
		s.publishes.Observe(&meter.Latencies, took, 1)
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

// complainEvery bounds how often problems of one kind are logged: a full disk would otherwise fill another one.
const complainEvery = int64(time.Second)

// complain logs a request that failed for the server's own reasons, now and then; unsaid is how many were left out.
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

// Stats is what the interface did since the start.
type Stats struct {
	Requests      []Requests         // those that there were
	Received      uint64             // bytes of bodies
	Sent          uint64             // bytes of bodies, without those of subscriptions
	Publishes     meter.Distribution // how long publishes took that were acknowledged, in nanoseconds
	Limited       map[string]uint64  // requests refused by whose rate window
	Subscribers   int                // open subscriptions
	Subscriptions uint64             // subscriptions that were begun
	Ended         map[string]uint64  // and ended, by why
	Panics        uint64
}

// Requests is a number of requests that had the same fate. Method and Route are "other" for what is not ours, and Status
// is 0 where nobody got an answer.
type Requests struct {
	Method, Route string
	Status        int
	Count         uint64
}

// Stats adds everything up.
func (h *Handler) Stats() Stats {
	n := &h.counts
	s := Stats{
		Subscribers: h.Subscribers(), Subscriptions: n.subscriptions.Load(), Panics: n.panics.Load(),
		Limited: map[string]uint64{}, Ended: map[string]uint64{},
	}
	for i, name := range windowNames {
		s.Limited[name] = n.limited[i].Load()
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
