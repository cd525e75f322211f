package api

import (
	"net/http"
	"slices"
)

// cors lets pages from other origins use the API (D29). Allowing any origin is safe because the API
// ignores cookies.
type cors struct {
	any     bool
	origins []string
}

var (
	anyOrigin      = []string{"*"}
	varyOrigin     = []string{"Origin"}
	varyBoth       = []string{"Accept-Encoding, Origin"}
	exposedHeaders = []string{"x-request-id, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after, x-svc-cursor, x-svc-outcome, x-svc-publisher, x-svc-stream-created"}
	allowedMethods = []string{"GET, HEAD, POST, PATCH, DELETE, OPTIONS"}
	allowedHeaders = []string{"authorization, content-type, idempotency-key, last-event-id, x-svc-contiguous, x-svc-publisher"}
	preflightAge   = []string{"86400"}

	besideExposed = []string{exposedHeaders[0] + ", etag, location, stream-next-offset, stream-cursor, stream-up-to-date, stream-closed, stream-ttl, stream-expires-at, stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq"}
	besideMethods = []string{"GET, HEAD, PUT, POST, DELETE, OPTIONS"}
	besideHeaders = []string{allowedHeaders[0] + ", if-none-match, stream-seq, stream-ttl, stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, stream-fork-sub-offset, producer-id, producer-epoch, producer-seq"}
)

func newCORS(origins []string) cors {
	return cors{any: slices.Contains(origins, "*"), origins: origins}
}

// allow sets the header fields without which a browser hides the response from the page. It reports
// whether the origin is allowed.
func (o *cors) allow(r *http.Request, h http.Header) bool {
	origin := r.Header["Origin"]
	if len(o.origins) == 0 {
		return false
	}
	if !o.any {
		// Set Vary even if the request has no Origin field, so that a cache does not reuse this
		// response for a page that sends one.
		switch h.Get("Vary") {
		case "":
			h["Vary"] = varyOrigin
		case varyEncoding[0]:
			h["Vary"] = varyBoth
		}
	}
	if len(origin) != 1 {
		return false
	}
	switch {
	case o.any:
		h["Access-Control-Allow-Origin"] = anyOrigin
	case slices.Contains(o.origins, origin[0]):
		h["Access-Control-Allow-Origin"] = origin
	default:
		return false
	}
	h["Access-Control-Expose-Headers"] = exposedHeaders
	return true
}

// allowOrigin reports whether the origin is allowed, like cors.allow. It returns false without
// calling cors.allow in two cases: the call would have no effect, or the request needs a management
// token, which pages of other origins must not use.
func (c *call) allowOrigin() bool {
	if c.route.manages || c.h.cors.any && c.facts != nil && c.facts.direct {
		return false
	}
	return c.h.cors.allow(c.r, c.w.Header())
}

// preflight answers OPTIONS on any path. The request needs no key and does not count in a rate
// window (D29, D23). Unknown paths are allowed too, so that a page can read the 404 response to its
// actual request.
func (c *call) preflight() error {
	c.peek()
	h := c.w.Header()
	if allow := endpoints[c.route.kind].allow; allow != nil {
		h["Allow"] = allow
	} else {
		h["Allow"] = allowedMethods
	}
	if c.route.kind == besideRoute {
		h["Allow"] = besideMethods
	}
	if !c.route.manages && c.h.cors.allow(c.r, h) {
		h["Access-Control-Allow-Methods"] = allowedMethods
		h["Access-Control-Allow-Headers"] = allowedHeaders
		h["Access-Control-Max-Age"] = preflightAge
		if c.route.kind == besideRoute {
			h["Access-Control-Allow-Methods"], h["Access-Control-Allow-Headers"] = besideMethods, besideHeaders
		}
	}
	c.head(http.StatusNoContent, "", none, none)
	return nil
}
