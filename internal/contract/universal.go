package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fault is the HTTP status and error type that belong to an error code.
type fault struct {
	status int
	kind   string
}

// faults has every error code: those of the specification and those that D26 adds.
var faults = map[string]fault{
	"missing_api_key":        {401, "authentication_error"},
	"invalid_api_key":        {401, "authentication_error"},
	"key_revoked":            {401, "authentication_error"},
	"project_forbidden":      {403, "authentication_error"},
	"stream_limit_reached":   {403, "limit_error"},
	"invalid_request_error":  {400, "invalid_request_error"},
	"invalid_stream_id":      {400, "invalid_request_error"},
	"stream_not_found":       {404, "not_found_error"},
	"stream_name_taken":      {409, "conflict_error"},
	"invalid_sequence":       {409, "conflict_error"},
	"payload_too_large":      {413, "invalid_request_error"},
	"unsupported_media_type": {415, "invalid_request_error"},
	"retention_out_of_range": {422, "invalid_request_error"},
	"sequence_too_far_ahead": {422, "invalid_request_error"},
	"rate_limited":           {429, "rate_limit_error"},
	"sequence_not_next":      {412, "conflict_error"},
	"stream_closed":          {409, "conflict_error"},
	"not_found":              {404, "not_found_error"},
	"method_not_allowed":     {405, "invalid_request_error"},
	"internal_error":         {500, "api_error"},
	"storage_unavailable":    {503, "api_error"},
	"overloaded":             {503, "api_error"},
}

// envelope is the body of an error.
type envelope struct {
	Error struct {
		Type      string `json:"type"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
		DocURL    string `json:"doc_url"`
	} `json:"error"`
}

var (
	requestID = regexp.MustCompile(`^req_[0-9A-Za-z]{16}$`)
	streamID  = regexp.MustCompile(`^[0-9A-Za-z]{22}$`)
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	decimal   = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	published = regexp.MustCompile(`^/v1/streams/[^/?]+/[^/?]+(\?.*)?$`)
)

// universal applies the checks that hold for every response.
func (a *Answer) universal(v1 bool) {
	a.t.Helper()
	bad := func(format string, args ...any) {
		a.t.Helper()
		a.t.Errorf("%s: %d: %s", a.request, a.Status, fmt.Sprintf(format, args...))
	}
	if v1 {
		for _, fault := range headers(a.Header, time.Now()) {
			bad("%s", fault)
		}
		if id := a.Header.Get("X-Request-Id"); id != "" {
			if _, twice := a.t.requestIDs.LoadOrStore(id, true); twice {
				bad("x-request-id %s was used before", id)
			}
		}
	}
	head := strings.HasPrefix(a.request, http.MethodHead+" ")
	switch {
	case a.Status >= 500 && !(a.t.Apart && a.Status == http.StatusServiceUnavailable):
		bad("the server failed: %s", a.Body)
	case a.Status >= 300 && a.Status < 400:
		bad("redirect to %s, but no endpoint redirects", a.Header.Get("Location"))
	case a.Status == http.StatusNoContent || head:
		if len(a.Body) > 0 {
			bad("unexpected body %q", a.Body)
		}
	case v1 && a.Status >= 400:
		for _, fault := range a.t.errorFaults(a) {
			bad("%s", fault)
		}
	}
}

// headers returns the faults in the header fields that every response under /v1 has.
func headers(h http.Header, now time.Time) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	one := func(name string) string {
		if n := len(h.Values(name)); n != 1 {
			bad("%s occurs %d times, want once", name, n)
			return ""
		}
		return h.Get(name)
	}
	exact := func(name, want string) {
		if got := one(name); got != want {
			bad("%s is %q, want %q", name, got, want)
		}
	}
	number := func(name string) int64 {
		text := one(name)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !decimal.MatchString(text) {
			bad("%s is %q, not an integer", name, text)
		}
		return n
	}
	exact("Cache-Control", "no-store")
	exact("Server", "svc")
	exact("X-Content-Type-Options", "nosniff")
	if id := one("X-Request-Id"); !requestID.MatchString(id) {
		bad("x-request-id is %q, not req_ and 16 base62 characters", id)
	}
	limit, remaining := number("X-Ratelimit-Limit"), number("X-Ratelimit-Remaining")
	if limit < 1 || remaining < 0 || remaining > limit {
		bad("the rate limit is %d with %d remaining", limit, remaining)
	}
	// A window may have ended while the request was in flight.
	if away := number("X-Ratelimit-Reset") - now.Unix(); away < -60 || away > 65 {
		bad("x-ratelimit-reset is %d s from now, but a window lasts 60 s", away)
	}
	if h.Get("Set-Cookie") != "" {
		bad("the response sets a cookie")
	}
	return faults
}

// errorFaults returns the faults in an error response: in the error object, and in the header
// fields that belong to it.
func (t *T) errorFaults(a *Answer) (found []string) {
	bad := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		bad("the error's content type is %q", got)
	}
	var e envelope
	if err := Exactly(a.Body, &e); err != nil {
		bad("error object: %v in %s", err, Shorten(string(a.Body)))
		return found
	}
	f, ok := faults[e.Error.Code]
	switch {
	case !ok:
		bad("unknown error code %q", e.Error.Code)
	case a.Status == 431 && e.Error.Code == "invalid_request_error" && f.kind == e.Error.Type: // D26: the header fields of the request are too large
	case f.status != a.Status || f.kind != e.Error.Type:
		bad("%s has status %d and type %s, want %d and %s", e.Error.Code, a.Status, e.Error.Type, f.status, f.kind)
	}
	if e.Error.Message == "" {
		bad("the error has no message")
	}
	if id := a.Header.Get("X-Request-Id"); e.Error.RequestID != id {
		bad("error.request_id is %q, but x-request-id is %q", e.Error.RequestID, id)
	}
	if want := t.DocBase + "/docs/errors#" + e.Error.Code; e.Error.DocURL != want {
		bad("error.doc_url is %q, want %q", e.Error.DocURL, want)
	}
	accompanied := map[int]string{401: "Www-Authenticate", 405: "Allow", 429: "Retry-After", 503: "Retry-After"}
	if name := accompanied[a.Status]; name != "" && len(a.Header[name]) != 1 {
		bad("%s occurs %d times, want once", strings.ToLower(name), len(a.Header[name]))
	}
	if a.Status == http.StatusUnauthorized && a.Header.Get("Www-Authenticate") != "Bearer" {
		bad("www-authenticate is %q", a.Header.Get("Www-Authenticate"))
	}
	if v := a.Header.Get("Retry-After"); v != "" && !decimal.MatchString(v) {
		bad("retry-after is %q, want a number of seconds", v)
	}
	return found
}

// publishes checks the response to a successful publish: its status and x-svc-cursor must agree
// with the acknowledgement in the body. It ignores all other responses.
func (a *Answer) publishes(method, path string) {
	a.t.Helper()
	if method != http.MethodPost || !published.MatchString(path) || strings.HasSuffix(path, "/close") || a.Status >= 300 {
		return
	}
	var k Ack
	a.decode(&k)
	if got := a.Header.Values("X-Svc-Cursor"); len(got) != 1 || got[0] != strconv.FormatInt(k.Cursor, 10) {
		a.t.Errorf("%s: x-svc-cursor is %q, but the cursor in the body is %d", a.request, got, k.Cursor)
	}
	if want := map[bool]int{false: 202, true: 200}[k.Duplicate]; a.Status != want {
		a.t.Errorf("%s: status %d with duplicate %v, want %d", a.request, a.Status, k.Duplicate, want)
	}
}

// Exactly decodes a JSON object into a struct. The object must have every field of the struct and
// no other. A field with omitempty may be missing.
func Exactly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("unexpected data after the object")
	}
	return complete(b, reflect.TypeOf(v).Elem())
}

// complete checks that a JSON object has every field of a struct type, and that no field is null
// unless its type is a pointer.
func complete(b []byte, of reflect.Type) error {
	var got map[string]json.RawMessage
	if err := json.Unmarshal(b, &got); err != nil {
		return err
	}
	for i := range of.NumField() {
		f := of.Field(i)
		name, optional := strings.CutSuffix(f.Tag.Get("json"), ",omitempty")
		value, ok := got[name]
		if !ok && optional {
			continue
		}
		if !ok {
			return fmt.Errorf("field %s is missing; found %v", name, slices.Sorted(maps.Keys(got)))
		}
		if string(value) == "null" && f.Type.Kind() != reflect.Pointer {
			return fmt.Errorf("field %s is null", name)
		}
		if f.Type.Kind() == reflect.Struct {
			if err := complete(value, f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}
