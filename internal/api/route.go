package api

import (
	"net/http"
	"net/url"
	"strings"
)

// route is where a path leads. Its parts are decoded, each for itself: an encoded slash is a character of its part.
type route struct {
	kind    routeKind
	outside bool // not under /v1
	id      string
	seq     string // of a sequenced publish or a batch
}

type routeKind uint8

const (
	noRoute      routeKind = iota
	healthRoute            // /v1/health
	versionRoute           // /v1/version
	streamsRoute           // /v1/streams
	streamRoute            // /v1/streams/{id}
	cursorRoute            // /v1/streams/{id}/cursor
	nextRoute              // /v1/streams/{id}/publish
	atRoute                // /v1/streams/{id}/{seq}
	batchRoute             // /v1/streams/{id}/batches/{seq}
)

// routeNames are for the log, which shows no path as it came: people put keys into all sorts of places.
var routeNames = [...]string{"none", "/v1/health", "/v1/version", "/v1/streams", "/v1/streams/{id}", "/v1/streams/{id}/cursor",
	"/v1/streams/{id}/publish", "/v1/streams/{id}/{seq}", "/v1/streams/{id}/batches/{seq}"}

func (k routeKind) String() string { return routeNames[k] }

// endpoints says what answers on which route. A POST to a stream's cursor is a sequenced publish like any other that
// has no number, and refused as one (D30); allow does not advertise it.
var endpoints [batchRoute + 1]struct {
	get, post, delete func(*call) error
	allow             []string
}

func init() { // not in the declaration: endpoints refer to themselves through methodNotAllowed
	e := &endpoints
	e[healthRoute].get, e[healthRoute].allow = (*call).health, []string{"GET, HEAD, OPTIONS"}
	e[versionRoute].get, e[versionRoute].allow = (*call).version, []string{"GET, HEAD, OPTIONS"}
	e[streamsRoute].get, e[streamsRoute].post, e[streamsRoute].allow = (*call).streamList, (*call).streamCreate, []string{"GET, HEAD, POST, OPTIONS"}
	e[streamRoute].get, e[streamRoute].delete, e[streamRoute].allow = (*call).streamShow, (*call).streamDelete, []string{"GET, HEAD, DELETE, OPTIONS"}
	e[cursorRoute].get, e[cursorRoute].post, e[cursorRoute].allow = (*call).cursor, (*call).publishAt, []string{"GET, HEAD, OPTIONS"}
	e[nextRoute].post, e[nextRoute].allow = (*call).publishNext, []string{"POST, OPTIONS"}
	e[atRoute].post, e[atRoute].allow = (*call).publishAt, []string{"POST, OPTIONS"}
	e[batchRoute].get, e[batchRoute].allow = (*call).batch, []string{"GET, HEAD, OPTIONS"}
}

// public tells whether the route needs no key, whatever is done with it.
func (r *route) public() bool { return r.kind == healthRoute || r.kind == versionRoute }

// parseRoute finds where a path leads. Nothing is cleaned up first: a path with an empty part or a trailing slash is
// no route, and what does not look like an id is refused as one (D30).
func parseRoute(u *url.URL) route {
	path, encoded := u.Path, false
	if u.RawPath != "" { // some part is written otherwise than it had to be
		path, encoded = u.EscapedPath(), true
	}
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return outsideRoute(path)
	}
	var parts [4]string
	n := 0
	for more := true; more; n++ {
		if n == len(parts) {
			return route{}
		}
		if parts[n], rest, more = strings.Cut(rest, "/"); parts[n] == "" {
			return route{}
		}
	}
	for i := range parts[:n] {
		if !encoded {
			break
		}
		part, err := url.PathUnescape(parts[i])
		if err != nil {
			return route{}
		}
		parts[i] = part
	}
	return pick(parts[:n])
}

func pick(parts []string) route {
	switch {
	case len(parts) == 1 && parts[0] == "health":
		return route{kind: healthRoute}
	case len(parts) == 1 && parts[0] == "version":
		return route{kind: versionRoute}
	case parts[0] != "streams":
		return route{}
	}
	switch len(parts) {
	case 1:
		return route{kind: streamsRoute}
	case 2:
		return route{kind: streamRoute, id: parts[1]}
	case 3:
		r := route{kind: atRoute, id: parts[1], seq: parts[2]}
		switch parts[2] {
		case "publish":
			r.kind = nextRoute
		case "cursor":
			r.kind = cursorRoute
		}
		return r
	}
	if parts[2] == "batches" {
		return route{kind: batchRoute, id: parts[1], seq: parts[3]}
	}
	return route{}
}

// outsideRoute is for what does not begin with /v1/. /v1 itself is under /v1, and no route.
func outsideRoute(path string) route {
	return route{outside: path != "/v1"}
}

// methodNotAllowed answers 405 with the methods that the route has (D26).
func (c *call) methodNotAllowed() error {
	c.w.Header()["Allow"] = endpoints[c.route.kind].allow
	return errMethod
}

// isHead tells whether only the header fields are wanted (D30).
func (c *call) isHead() bool { return c.r.Method == http.MethodHead }
