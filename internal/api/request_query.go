package api

import (
	"net/netip"
	"slices"
	"time"

	"weir"
	"weir/internal/meter"
)

// RequestQuery selects requests of the log. A field with its zero value selects all requests.
type RequestQuery struct {
	Key    string        // id of a key
	Stream weir.StreamID // id of a stream
	Route  string        // name of a route, as in Request.Route
	Status int           // a status such as 404, or the first digit of one, such as 4
	Slow   bool          // only requests that took a second or more
	Hinted bool          // only requests with hints
	Since  time.Time     // requests that arrived at this time or later
	Before time.Time     // requests that arrived before this time
}

// slowAfter is the shortest duration of a request that counts as slow.
const slowAfter = int64(time.Second)

// isSlow reports whether a request that took this many nanoseconds is slow. The client decides how
// long a subscription or a long poll takes, so these do not count.
func (c *call) isSlow(took int64) bool { return took >= slowAfter && c.ended == nil }

// Requests returns the latest requests of the last 24 hours that a query selects, newest first. It
// returns at most the given number of them. It locks each part of the log for some tens of
// microseconds. Requests that end at the same time may have to wait for that lock.
func (h *Handler) Requests(q RequestQuery, most int) []Request {
	now, meterNow := time.Now(), meter.Now()
	m := matcher{RequestQuery: q, route: -1, from: meterNow - int64(requestLife), to: meterNow + int64(time.Hour)}
	if q.Route != "" {
		m.route = slices.Index(routeNames[:], q.Route)
		if q.Route == other {
			m.route = int(noRoute)
		} else if m.route < 0 {
			return nil
		}
	}
	if !q.Since.IsZero() {
		m.from = max(m.from, meterNow-int64(now.Sub(q.Since)))
	}
	if !q.Before.IsZero() {
		m.to = min(m.to, meterNow-int64(now.Sub(q.Before)))
	}
	var list []Request
	for i := range h.requests {
		s := &h.requests[i]
		for _, ring := range s.rings(&q) {
			s.mu.Lock()
			found := 0
			for j, n := 0, len(ring.notes); j < n && found < most; j++ { // newest first
				if note := &ring.notes[(ring.next+n-1-j)%n]; m.matches(note) {
					found++
					list = append(list, note.request(now, meterNow))
				}
			}
			s.mu.Unlock()
		}
	}
	slices.SortFunc(list, func(a, b Request) int { return b.At.Compare(a.At) })
	return list[:min(len(list), most)]
}

// rings returns the rings that may have requests which the query selects.
func (s *requestShard) rings(q *RequestQuery) []*requestRing {
	class := q.Status
	if class >= 100 {
		class /= 100
	}
	switch {
	case class == 5:
		return []*requestRing{&s.failed}
	case class == 4:
		return []*requestRing{&s.refused}
	case q.Slow || q.Hinted: // s.served has no slow requests, because subscriptions do not count as slow
		return []*requestRing{&s.failed, &s.refused, &s.marked}
	case class != 0:
		return []*requestRing{&s.marked, &s.served}
	}
	return []*requestRing{&s.failed, &s.refused, &s.marked, &s.served}
}

// matcher is a query in a form that can be compared with a requestNote.
type matcher struct {
	RequestQuery
	route    int   // -1 for all routes
	from, to int64 // requestNote.at must be at least from, and less than to
}

func (m *matcher) matches(n *requestNote) bool {
	switch {
	case n.at < m.from || n.at >= m.to:
	case m.Key != "" && n.key != m.Key:
	case m.Stream != "" && string(n.stream[:]) != string(m.Stream):
	case m.route >= 0 && int(n.route) != m.route:
	case m.Slow && n.took < slowAfter:
	case m.Hinted && n.hints == "":
	case m.Status >= 100 && int(n.status) != m.Status, m.Status > 0 && m.Status < 100 && int(n.status)/100 != m.Status:
	default:
		return true
	}
	return false
}

// RouteNames returns the names of the routes in the log.
func RouteNames() []string { return append(slices.Clone(routeNames[1:]), other) }

// source returns the client's address for the log. Without a proxy this is RemoteAddr, the address
// with its port. It is parsed only when the log is shown (see addressOf), so that parsing does not
// slow down requests.
func (c *call) source() string {
	if (c.facts == nil || !c.facts.direct) && len(c.r.Header["X-Forwarded-For"]) > 0 {
		return c.client().String()
	}
	return c.r.RemoteAddr
}

// addressOf parses the result of source.
func addressOf(source string) netip.Addr {
	if at, err := netip.ParseAddrPort(source); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	at, _ := netip.ParseAddr(source)
	return at
}
