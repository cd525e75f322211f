package api

import (
	"net/url"
	"strings"
)

// queryParameter returns the value of a query parameter. The result given says whether the query
// has the parameter. The result ok is false if the query has the parameter more than once, or if
// the parameter cannot be parsed (D35). It cannot be parsed if it has an invalid percent escape, or
// a semicolon, which some clients use as a separator.
//
// url.ParseQuery is not used, because it drops pairs that it cannot parse: a request with a
// malformed cursor would be treated like a request without a cursor. In queryParameter, a pair
// belongs to the name before its first = or semicolon. Pairs with other names may contain anything.
func queryParameter(query, name string) (value string, given, ok bool) {
	ok = true
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		end := strings.IndexAny(pair, "=;")
		if end < 0 {
			end = len(pair)
		}
		if key, err := url.QueryUnescape(pair[:end]); err != nil || key != name {
			continue
		}
		text, err := url.QueryUnescape(strings.TrimPrefix(pair[end:], "="))
		if given || err != nil || strings.Contains(pair[end:], ";") {
			ok = false
		}
		value, given = text, true
	}
	return value, given, ok
}
