package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"weir"
)

const (
	jsonType  = "application/json"
	bytesType = "application/octet-stream"

	// maxContentType is the longest content type that is accepted. It is limited because the
	// content type is stored with every raw batch.
	maxContentType = 1024
)

func unsupported(message string) error {
	return &weir.Error{Code: weir.UnsupportedMediaType, Message: message}
}

// contentType checks that the Content-Type of a request has the media type in the parameter want,
// and that the body has no Content-Encoding other than identity. It returns the Content-Type as the
// client sent it, with its parameters (D7).
func contentType(h http.Header, want string) (string, error) {
	if e := h["Content-Encoding"]; e != nil && (len(e) != 1 || !strings.EqualFold(e[0], "identity")) {
		return "", unsupported("the Content-Encoding is not supported; send the body unencoded")
	}
	values := h["Content-Type"]
	switch len(values) {
	case 0:
		return "", unsupported("the Content-Type header field is missing; send " + want)
	case 1:
	default:
		return "", unsupported("the request has more than one Content-Type header field; send one: " + want)
	}
	if values[0] == want {
		return want, nil
	}
	media, params, err := mime.ParseMediaType(values[0])
	switch {
	case err != nil || media != want || !visible(values[0], true) || len(values[0]) > maxContentType:
		return "", unsupported("the Content-Type is invalid or not supported here; send " + want)
	case want == jsonType && params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8"):
		return "", unsupported("the charset is not supported; send JSON as UTF-8")
	}
	return values[0], nil
}

// visible reports whether s consists only of visible ASCII characters. If allowSpaces is true, s
// may also contain spaces.
func visible(s string, allowSpaces bool) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' && (c != ' ' || !allowSpaces) || c >= 0x7f {
			return false
		}
	}
	return true
}

// acceptsEvents reports whether an Accept header field lists text/event-stream with a quality (q)
// above 0 (D28). A range such as */* does not count as text/event-stream. Malformed elements are
// ignored.
func acceptsEvents(accept []string) bool {
	for _, list := range accept {
		if !strings.Contains(list, "/") || len(list) < len("text/event-stream") {
			continue
		}
		if lists(list, "text/event-stream") {
			return true
		}
	}
	return false
}

// acceptsGzip reports whether an Accept-Encoding header field lists gzip with a quality above 0. A
// client that sends only "*" gets no compressed response, because every client can read the plain
// one.
func acceptsGzip(fields []string) bool {
	for _, list := range fields {
		if lists(list, "gzip") {
			return true
		}
	}
	return false
}

// lists reports whether a list of values has the given value with a quality above 0.
func lists(list, value string) bool {
	for more := true; more; {
		var element string
		element, list, more = cutElement(list, ',')
		if isWanted(element, value) {
			return true
		}
	}
	return false
}

// isWanted reports whether an element of a list is the given value with a quality above 0.
func isWanted(element, want string) bool {
	value, params, more := cutElement(element, ';')
	if !strings.EqualFold(strings.Trim(value, " \t"), want) {
		return false
	}
	for more {
		var param string
		param, params, more = cutElement(params, ';')
		name, value, _ := strings.Cut(strings.Trim(param, " \t"), "=")
		if strings.EqualFold(name, "q") {
			return positive(value)
		}
	}
	return true
}

// positive reports whether a quality value is valid and above 0.
func positive(q string) bool {
	if len(q) == 0 || len(q) > 5 || strings.Trim(q, "0123456789.") != "" {
		return false
	}
	v, err := strconv.ParseFloat(q, 32)
	return err == nil && v > 0 && v <= 1
}

// cutElement cuts s at the first separator outside of quoted strings.
func cutElement(s string, separator byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
