package api

import (
	"net/url"
	"strings"
)

// parameter returns the value of a query parameter, and whether it is given. It reports false for ok
// if the parameter is given twice, or in a way that cannot be parsed (D35): with an invalid percent escape, or followed by a semicolon, which some clients use as a separator.
//
// url.ParseQuery drops pairs that it cannot parse, so a misspelt cursor would become a request
// without a cursor. Here a pair belongs to the name before its = or semicolon. Pairs of other names
// may hold anything.
func parameter(query, name string) (value string, given, ok bool) {
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
