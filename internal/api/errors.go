package api

import (
	"errors"
	"net/http"
	"strconv"

	"weir"
)

// fault is what the interface says about a code. This table is the only place that knows the statuses of errors, and the
// manual's page about them is made from it.
type fault struct {
	code       weir.Code
	status     int
	kind       string // error.type (D26)
	retryAfter string // seconds; a rate window has its own
	means      string
	todo       string
}

const (
	authentication = "authentication_error"
	invalid        = "invalid_request_error"
	notFound       = "not_found_error"
	conflict       = "conflict_error"
	limit          = "limit_error"
	rateLimit      = "rate_limit_error"
	apiError       = "api_error"
)

var faults = [...]fault{
	{weir.MissingAPIKey, http.StatusUnauthorized, authentication, "",
		"The request has no Authorization header field, or an empty one.",
		"Send Authorization: Bearer and your key. Only health, version and reading the demo stream need no key."},
	{weir.InvalidAPIKey, http.StatusUnauthorized, authentication, "",
		"What was sent is not one well-formed key, or there is no such key.",
		"Compare the key with the one that was shown when it was made: svc_live_ or svc_test_ and 32 lower case hexadecimal digits, after Bearer and one space, in one header field."},
	{weir.KeyRevoked, http.StatusUnauthorized, authentication, "",
		"The key was revoked.",
		"Use another key. A revoked key never comes back; make a new one in the dashboard."},
	{weir.ProjectForbidden, http.StatusForbidden, authentication, "",
		"The stream exists, but this key may not do this with it: it belongs to another project, lacks the permission, or is confined to other streams.",
		"Use a key of the stream's project with the permission that the message names. The demo stream can only be read."},
	{weir.StreamLimitReached, http.StatusForbidden, limit, "",
		"The project has as many streams as it may have.",
		"Delete a stream that is no longer needed, or ask the operator for a higher limit."},
	{weir.InvalidRequest, http.StatusBadRequest, invalid, "",
		"Something about the request is wrong: its body, a query parameter or a header field. The message says what and where.",
		"Correct it. Sending the same request again will not help."},
	{weir.InvalidStreamID, http.StatusBadRequest, invalid, "",
		"The stream id in the path is not " + weir.IDForm + ".",
		"Use the id as the stream object has it."},
	{weir.StreamNotFound, http.StatusNotFound, notFound, "",
		"There is no such stream, or it has no such batch: it was evicted, or never stored. The message says which.",
		"Check the id; a deleted stream is gone for good. For a batch, compare with the stream's cursor and its retention."},
	{weir.StreamNameTaken, http.StatusConflict, conflict, "",
		"A stream with the id that the request supplied exists already, in this project or in another one.",
		"If you created it before, go on and use it. Otherwise choose another id, or supply none."},
	{weir.InvalidSequence, http.StatusConflict, conflict, "",
		"The sequence is not a plain decimal number from 0 to 9007199254740991, or it is at or below the cursor, not stored, and can not be filled any more.",
		"Go on above the stream's cursor. A batch that was lost on the way has to be published under a new sequence."},
	{weir.PayloadTooLarge, http.StatusRequestEntityTooLarge, invalid, "",
		"The body of a publish is larger than 8 MiB (of a create: 64 KiB), or the batch is larger than the stream's max_bytes.",
		"Publish the events in several batches."},
	{weir.UnsupportedMediaType, http.StatusUnsupportedMediaType, invalid, "",
		"The content type does not fit, or the body is encoded (compressed).",
		"Send application/json in UTF-8 to create and to publish to a json stream, application/octet-stream to a raw stream, and no Content-Encoding."},
	{weir.RetentionOutOfRange, http.StatusUnprocessableEntity, invalid, "",
		"retention_seconds is not between 60 and 2592000.",
		"Choose a value in this range, or leave it out for 86400."},
	{weir.SequenceTooFarAhead, http.StatusUnprocessableEntity, invalid, "",
		"The sequence is more than 1024 above the stream's cursor.",
		"Publish what comes before it first; keep at most 1024 batches in flight."},
	{weir.RateLimited, http.StatusTooManyRequests, rateLimit, "",
		"More requests than the window allows.",
		"Wait for as many seconds as retry-after says. x-ratelimit-remaining shows what is left of a window, and x-ratelimit-reset when it ends."},
	{weir.NotFound, http.StatusNotFound, notFound, "",
		"The interface has no such path. Paths are case-sensitive and have no slash at the end.",
		"Compare the path with the reference."},
	{weir.MethodNotAllowed, http.StatusMethodNotAllowed, invalid, "",
		"The path exists, but not with this method.",
		"Use one of the methods in the allow header field."},
	{weir.InternalError, http.StatusInternalServerError, apiError, "",
		"Something went wrong on the server that should not have. It is in the server's log under the request id.",
		"Try again. A publish under a sequence of your own can be repeated without risk. If it happens again, tell the operator the request id."},
	{weir.StorageUnavailable, http.StatusServiceUnavailable, apiError, "5",
		"The store cannot take writes at the moment, for example because the disk is full. Nothing was acknowledged.",
		"Try again after retry-after. Reading and deleting go on; the operator has to make space or look after the disk."},
	{weir.Overloaded, http.StatusServiceUnavailable, apiError, "5",
		"This server has reached a limit of its own, such as the number of open subscriptions.",
		"Try again after retry-after, or on another server."},
}

// faultOf finds the row of a code.
var faultOf = func() map[weir.Code]*fault {
	m := make(map[weir.Code]*fault, len(faults))
	for i := range faults {
		m[faults[i].code] = &faults[i]
	}
	return m
}()

// Fault is what people are told about a code.
type Fault struct {
	Code        weir.Code
	Status      int
	Type        string // error.type (D26)
	RetryAfter  bool   // comes with retry-after
	Means, Todo string
}

// Faults are all codes, in the order in which to explain them.
func Faults() []Fault {
	var all []Fault
	for _, f := range faults {
		all = append(all, Fault{f.code, f.status, f.kind, f.retryAfter != "" || f.status == http.StatusTooManyRequests, f.means, f.todo})
	}
	return all
}

// The refusals of this package that need no detail, made once.
var (
	errNoRoute     = &weir.Error{Code: weir.NotFound, Message: "there is no such path"}
	errMethod      = &weir.Error{Code: weir.MethodNotAllowed, Message: "this path does not have this method; the allow header field lists those that it has"}
	errRateLimited = &weir.Error{Code: weir.RateLimited, Message: "too many requests in this window; retry-after says how many seconds are left of it"}
	errStreamID    = &weir.Error{Code: weir.InvalidStreamID, Message: weir.ErrStreamID.Error()}
	errInternal    = &weir.Error{Code: weir.InternalError, Message: "something went wrong on the server; quote the request id when you report it"}
	errGone        = &weir.Error{Code: weir.StorageUnavailable, Message: "the request was given up before its outcome was known"}

	errPanic = errors.New("panic") // which was logged already
)

// known finds what the caller may know of an error.
func known(err error) *weir.Error {
	if e, ok := err.(*weir.Error); ok {
		return e
	}
	var e *weir.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func code(err error) weir.Code {
	if e := known(err); e != nil {
		return e.Code
	}
	return weir.InternalError
}

// refuse answers with an error. What the caller may not know is logged, once, and hidden.
func (c *call) refuse(err error) {
	e, gone := known(err), false
	switch {
	case e != nil:
	case c.gone(err):
		e, gone = errGone, true
	default:
		e = errInternal
		if !errors.Is(err, errPanic) {
			c.h.Logger.Error("request failed", "request_id", string(c.id[:]), "method", methodNames[methodPlace(c.r.Method)], "route", c.route.kind.String(), "error", err)
		}
	}
	f := faultOf[e.Code]
	if f == nil { // a code without a row; a test keeps this from happening
		f, e = faultOf[weir.InternalError], errInternal
	}
	if f.status == http.StatusServiceUnavailable && !gone {
		c.complain(f.status, string(f.code))
	}
	c.fault = f
	h := c.w.Header()
	if f.retryAfter != "" {
		h["Retry-After"] = []string{f.retryAfter}
	}
	switch f.status {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = bearer
	case http.StatusTooManyRequests:
		h["Retry-After"] = []string{strconv.Itoa(c.window.RetryAfter)}
	}
	p := buffers.Get().(*[]byte)
	b := c.appendError(*p, f, e.Message)
	c.answer(f.status, b)
	putBuffer(p, b)
	if gone {
		c.status = 0 // nobody got it, so that it is no refusal
	}
}

// appendError appends the error object.
func (c *call) appendError(b []byte, f *fault, message string) []byte {
	b = append(b, `{"error":{"type":"`...)
	b = append(b, f.kind...)
	b = append(b, `","code":"`...)
	b = append(b, f.code...)
	b = append(b, `","message":`...)
	b = appendString(b, message)
	b = append(b, `,"request_id":"`...)
	b = append(b, c.id[:]...)
	b = append(b, `","doc_url":`...)
	b = appendString(b, c.h.BaseURL+"/docs/errors#"+string(f.code))
	return append(b, "}}"...)
}
