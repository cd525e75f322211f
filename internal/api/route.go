package api

import (
	"net/http"
	"net/url"
	"strings"

	"weir"
)

// route is a parsed path. The path is split at its slashes before each part is percent-decoded, so
// an encoded slash stays inside its part.
type route struct {
	kind    routeKind
	outside bool   // the path is neither under /v1 nor under /manage/v1
	manages bool   // the path is under /manage/v1, so the request needs a management token (D36)
	id      string // stream id, not yet checked
	seq     string // sequence of a publish or of a batch, not yet checked
	key     string // id of a key, not yet checked
}

type routeKind uint8

const (
	noRoute       routeKind = iota
	healthRoute             // /v1/health
	versionRoute            // /v1/version
	streamsRoute            // /v1/streams
	streamRoute             // /v1/streams/{id}
	cursorRoute             // /v1/streams/{id}/cursor
	nextRoute               // /v1/streams/{id}/publish
	atRoute                 // /v1/streams/{id}/{seq}
	batchRoute              // /v1/streams/{id}/batches/{seq}
	batchesRoute            // /v1/streams/{id}/batches
	closeRoute              // /v1/streams/{id}/close
	projectsRoute           // /manage/v1/projects
	keysRoute               // /manage/v1/keys
	revokeRoute             // /manage/v1/keys/{id}/revoke
	besideRoute             // a path outside /v1 that another package serves (visit.go)
)

// routeNames are the names of the routes in logs and metrics. Logs and metrics never show the path
// of a request, because clients sometimes put API keys there.
var routeNames = [...]string{"none", "/v1/health", "/v1/version", "/v1/streams", "/v1/streams/{id}", "/v1/streams/{id}/cursor",
	"/v1/streams/{id}/publish", "/v1/streams/{id}/{seq}", "/v1/streams/{id}/batches/{seq}",
	"/v1/streams/{id}/batches", "/v1/streams/{id}/close",
	"/manage/v1/projects", "/manage/v1/keys", "/manage/v1/keys/{id}/revoke", "/ds/{path}"}

func (k routeKind) String() string { return routeNames[k] }

// endpoints maps each route and method to a function. The field allow has the value of the Allow
// header field. A POST to /v1/streams/{id}/cursor counts as a publish whose sequence, "cursor", is
// not a number. It is refused for that reason (D30), so the field allow does not list POST for this
// route. The same applies to /v1/streams/{id}/batches.
var endpoints [besideRoute + 1]struct {
	get, post, patch, delete func(*call) error
	allow                    []string
}

// init fills endpoints. A method without a function gets 405.
func init() {
	e := &endpoints
	e[healthRoute].get, e[healthRoute].allow = (*call).health, []string{"GET, HEAD, OPTIONS"}
	e[versionRoute].get, e[versionRoute].allow = (*call).version, []string{"GET, HEAD, OPTIONS"}
	e[streamsRoute].get, e[streamsRoute].post, e[streamsRoute].allow = (*call).streamList, (*call).streamCreate, []string{"GET, HEAD, POST, OPTIONS"}
	e[streamRoute].get, e[streamRoute].patch, e[streamRoute].delete = (*call).streamShow, (*call).streamChange, (*call).streamDelete
	e[streamRoute].allow = []string{"GET, HEAD, PATCH, DELETE, OPTIONS"}
	e[cursorRoute].get, e[cursorRoute].post, e[cursorRoute].allow = (*call).cursor, (*call).publishAt, []string{"GET, HEAD, OPTIONS"}
	e[nextRoute].post, e[nextRoute].allow = (*call).publishNext, []string{"POST, OPTIONS"}
	e[atRoute].post, e[atRoute].allow = (*call).publishAt, []string{"POST, OPTIONS"}
	e[batchRoute].get, e[batchRoute].allow = (*call).batch, []string{"GET, HEAD, OPTIONS"}
	e[batchesRoute].get, e[batchesRoute].post, e[batchesRoute].allow = (*call).batches, (*call).publishAt, []string{"GET, HEAD, OPTIONS"}
	e[closeRoute].post, e[closeRoute].allow = (*call).streamClose, []string{"POST, OPTIONS"}
	e[projectsRoute].get, e[projectsRoute].post, e[projectsRoute].allow = (*call).projectList, (*call).projectCreate, []string{"GET, HEAD, POST, OPTIONS"}
	e[keysRoute].get, e[keysRoute].post, e[keysRoute].allow = (*call).keyList, (*call).keyCreate, []string{"GET, HEAD, POST, OPTIONS"}
	e[revokeRoute].post, e[revokeRoute].allow = (*call).keyRevoke, []string{"POST, OPTIONS"}
}

// public reports whether requests to the route need no API key, whatever their method is.
func (r *route) public() bool { return r.kind == healthRoute || r.kind == versionRoute }

// parseRoute parses a path without normalising it. A path with an empty part or a trailing slash
// does not match any route. A part such as ".." where a stream id is expected is an invalid id
// (D30).
func parseRoute(u *url.URL) route {
	path, encoded := u.Path, false
	if u.RawPath != "" { // the path has unusual escapes, for example %2f
		path, encoded = u.EscapedPath(), true
	}
	rest, ok := strings.CutPrefix(path, "/v1/")
	manages := false
	if !ok {
		if rest, manages = strings.CutPrefix(path, "/manage/v1/"); !manages {
			return outsideRoute(path)
		}
	}
	var parts [4]string
	n := 0
	for more := true; more; n++ {
		if n == len(parts) {
			return route{manages: manages}
		}
		if parts[n], rest, more = strings.Cut(rest, "/"); parts[n] == "" {
			return route{manages: manages}
		}
	}
	for i := range parts[:n] {
		if !encoded {
			break
		}
		part, err := url.PathUnescape(parts[i])
		if err != nil {
			return route{manages: manages}
		}
		parts[i] = part
	}
	if manages {
		return pickManaged(parts[:n])
	}
	return pick(parts[:n])
}

// pickManaged returns the route for a path under /manage/v1.
func pickManaged(parts []string) route {
	r := route{manages: true}
	switch {
	case len(parts) == 1 && parts[0] == "projects":
		r.kind = projectsRoute
	case len(parts) == 1 && parts[0] == "keys":
		r.kind = keysRoute
	case len(parts) == 3 && parts[0] == "keys" && parts[2] == "revoke":
		r.kind, r.key = revokeRoute, parts[1]
	}
	return r
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
		case "batches":
			r.kind = batchesRoute
		case "close":
			r.kind = closeRoute
		}
		return r
	}
	if parts[2] == "batches" {
		return route{kind: batchRoute, id: parts[1], seq: parts[3]}
	}
	return route{}
}

// outsideRoute returns the route of a path that begins with neither "/v1/" nor "/manage/v1/". The
// path "/v1" does not match any route either, but it does not count as outside.
func outsideRoute(path string) route {
	return route{outside: path != "/v1"}
}

// methodNotAllowed returns the error for a 405 response, and sets the Allow header field, which
// lists the methods of the route (D26).
func (c *call) methodNotAllowed() error {
	allow := endpoints[c.route.kind].allow
	c.w.Header()["Allow"] = allow
	return weir.Errorf(weir.MethodNotAllowed, "this path does not support the method of the request; use one of %s", allow[0])
}

// isHead reports whether the client wants only the header fields of the response (D30).
func (c *call) isHead() bool { return c.r.Method == http.MethodHead }
