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
	return qualityIn(accept, typeStream) > 0
}

// preferred returns the offered coding that Accept-Encoding header fields list with the highest
// quality. If several have the same quality, the last of them is returned. The result is empty if
// the client lists no offered coding with a quality above 0, or if it lists identity with a higher
// quality. A client that sends only "*" gets no compressed response, because every client can read
// the plain one.
func preferred(fields []string, offered ...coding) (best coding) {
	if len(fields) == 0 {
		return ""
	}
	highest := qualityIn(fields, "identity")
	for _, k := range offered {
		if q := qualityIn(fields, string(k)); q > 0 && q >= highest {
			best, highest = k, q
		}
	}
	return best
}

// qualityIn returns the quality of a value in lists of values, or 0 if no list has the value. If
// the value occurs more than once, the highest quality counts.
func qualityIn(lists []string, value string) (highest float64) {
	for _, list := range lists {
		for more := true; more; {
			var element string
			element, list, more = cutElement(list, ',')
			highest = max(highest, qualityOf(element, value))
		}
	}
	return highest
}

// qualityOf returns the quality of an element of a list, or 0 if the element is not the given value.
func qualityOf(element, want string) float64 {
	value, params, more := cutElement(element, ';')
	if !strings.EqualFold(strings.Trim(value, " \t"), want) {
		return 0
	}
	for more {
		var param string
		param, params, more = cutElement(params, ';')
		name, value, _ := strings.Cut(strings.Trim(param, " \t"), "=")
		if strings.EqualFold(name, "q") {
			return parseQuality(value)
		}
	}
	return 1
}

// parseQuality returns a quality value, or 0 if it is invalid.
func parseQuality(q string) float64 {
	if len(q) == 0 || len(q) > 5 || strings.Trim(q, "0123456789.") != "" {
		return 0
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || v > 1 {
		return 0
	}
	return v
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
