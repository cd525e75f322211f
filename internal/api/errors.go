package api

import (
	"errors"
	"net/http"
	"strconv"

	"weir"
	"weir/internal/access"
)

// fault describes an error code. The table of faults is the only place that maps codes to HTTP
// statuses, and the manual's page about errors is generated from it.
type fault struct {
	code       weir.Code
	status     int
	kind       string // error.type (D26)
	retryAfter string // seconds to send as retry-after; empty if the response has no such field, and for 429, because refuse computes the seconds then
	means      string // for the manual: what went wrong
	todo       string // for the manual: what the client can do about it
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
		"Send your key as Authorization: Bearer <key>, or, under /manage/v1, your management token. Only health, version and reading the demo stream need no key."},
	{weir.InvalidAPIKey, http.StatusUnauthorized, authentication, "",
		"The key is malformed or does not exist, or the request has more than one Authorization header field.",
		"Send one header field: Authorization: Bearer, one space, and the key exactly as it was shown when it was created. A key is " + access.KeyForm + ". Under /manage/v1 a management token is needed: " + access.TokenForm + ". A key that was revoked long ago is forgotten and gets this error too."},
	{weir.KeyRevoked, http.StatusUnauthorized, authentication, "",
		"The key was revoked, or has revoked itself because it was created with revoke_after. Under /manage/v1: the management token was revoked.",
		"Use another key, or create one in the dashboard. Revoking a key cannot be undone."},
	{weir.ProjectForbidden, http.StatusForbidden, authentication, "",
		"The key does not allow this request: it belongs to another project, lacks the permission, or is limited to other streams. A request for a stream that does not exist gets stream_not_found instead.",
		"Use a key of the stream's project that has the permission named in the message. The demo stream is read-only for all keys."},
	{weir.StreamLimitReached, http.StatusForbidden, limit, "",
		"The project has reached its limit of streams.",
		"Delete a stream that you no longer need, or ask the operator for a higher limit."},
	{weir.InvalidRequest, http.StatusBadRequest, invalid, "",
		"The body, a query parameter or a header field is invalid. The message says which one and why.",
		"Correct the request. Sending it again unchanged fails again."},
	{weir.InvalidStreamID, http.StatusBadRequest, invalid, "",
		"The stream id in the path is not 22 characters from 0-9, A-Z and a-z.",
		"Copy the id from the stream object."},
	{weir.StreamNotFound, http.StatusNotFound, notFound, "",
		"The stream does not exist, or it does not have this batch, which was evicted, lost or never stored. The message says which.",
		"Check the stream id. A deleted stream cannot be restored. For a batch, compare the sequence number with the stream's cursor and its retention."},
	{weir.StreamNameTaken, http.StatusConflict, conflict, "",
		"A stream with the requested id already exists, in this project or in another one.",
		"If you created it earlier, use it. Otherwise choose another id, or leave the id out."},
	{weir.InvalidSequence, http.StatusConflict, conflict, "",
		"The sequence number is not a plain decimal number from 0 to 9007199254740991. Or it is at or below the cursor, holds no batch, and can no longer be used.",
		"Continue above the stream's cursor. If the batch never reached the server, publish it with a new number."},
	{weir.PayloadTooLarge, http.StatusRequestEntityTooLarge, invalid, "",
		"The body is larger than 8 MiB for a publish or 64 KiB for any other request, or the batch is larger than the stream's max_bytes.",
		"Split the events into several batches."},
	{weir.UnsupportedMediaType, http.StatusUnsupportedMediaType, invalid, "",
		"The Content-Type is missing or does not match the stream's mode, or the body has a Content-Encoding such as gzip.",
		"Send application/json in UTF-8 to create a stream or publish to a json stream, and application/octet-stream to publish to a raw stream. Send no Content-Encoding."},
	{weir.RetentionOutOfRange, http.StatusUnprocessableEntity, invalid, "",
		"retention_seconds is not between 60 and 2592000.",
		"Choose a value in this range, or leave it out: a new stream gets 86400 (one day)."},
	{weir.SequenceTooFarAhead, http.StatusUnprocessableEntity, invalid, "",
		"The sequence number is more than 1024 above the stream's cursor.",
		"Publish the batches before it first, and keep at most 1024 batches in flight."},
	{weir.RateLimited, http.StatusTooManyRequests, rateLimit, "",
		"The key or the address has used up the requests of the current window. Or the key, its project or the address holds so many subscriptions that the server keeps the few remaining places for others. The message says which.",
		"Wait for the number of seconds in retry-after, or close subscriptions that you do not need. On every response, x-ratelimit-remaining is the number of requests left in the window, and x-ratelimit-reset is the time at which it ends."},
	{weir.SequenceNotNext, http.StatusPreconditionFailed, conflict, "",
		"The request has x-svc-contiguous, and its sequence number is more than one above the cursor: storing the batch would leave a gap. Nothing was stored.",
		"Publish the batches before it, then send this one again under the same number. If no batch is missing on your side, read the cursor: the stream may have been created anew."},
	{weir.StreamClosed, http.StatusConflict, conflict, "",
		"The stream was closed and takes no more batches. Nothing was stored. A batch that was stored before is still acknowledged as a duplicate.",
		"Do not retry. Reading and subscribing work as before. To publish more, create another stream."},
	{weir.NotFound, http.StatusNotFound, notFound, "",
		"The API has no such path. Paths are case-sensitive and have no trailing slash. Under /manage/v1, it can also mean that there is no such key.",
		"Compare the path with the API reference. A revoked key is forgotten after some time, and revoking it again is not needed."},
	{weir.MethodNotAllowed, http.StatusMethodNotAllowed, invalid, "",
		"The path exists but does not support this method.",
		"Use one of the methods in the allow header field."},
	{weir.InternalError, http.StatusInternalServerError, apiError, "",
		"The server failed unexpectedly. Its log has the cause under the request id.",
		"Retry. A publish with a sequence number or an Idempotency-Key is never stored twice. Any other publish may have been stored: look for its batch before you send it again. If the error persists, give the request id to the operator."},
	{weir.StorageUnavailable, http.StatusServiceUnavailable, apiError, "5",
		"The store cannot take writes at the moment, for example because the disk is full, or because the project uses more than its share of the memory for the index of batches. Nothing was acknowledged. A publish with this response stored nothing, unless the response has x-svc-outcome: unknown. Then its batch may have been stored.",
		"Retry after the number of seconds in retry-after. A publish with a sequence number or an Idempotency-Key is never stored twice. Without them, if the outcome is unknown, look for the batch before you send it again. Reading and deleting still work. The operator has to free space or repair the disk; if memory is short, deleting streams helps as well."},
	{weir.Overloaded, http.StatusServiceUnavailable, apiError, "5",
		"This server has reached one of its limits, such as the number of open subscriptions, or is shutting down.",
		"Retry after the number of seconds in retry-after, or use another server."},
}

// headerFault gives weir.InvalidRequest a second status, 431. Every other code has one status,
// the one in the table (D26).
var headerFault = fault{code: weir.InvalidRequest, status: http.StatusRequestHeaderFieldsTooLarge, kind: invalid}

// faultOf maps each code to its entry in the table of faults.
var faultOf = func() map[weir.Code]*fault {
	m := make(map[weir.Code]*fault, len(faults))
	for i := range faults {
		m[faults[i].code] = &faults[i]
	}
	return m
}()

// Fault describes an error code for the manual.
type Fault struct {
	Code        weir.Code
	Status      int
	Type        string // error.type (D26)
	RetryAfter  bool   // the response has a retry-after header field
	Means, Todo string // full sentences: what went wrong, and what the client can do
}

// Faults returns all error codes, in the order in which the manual explains them.
func Faults() []Fault {
	var all []Fault
	for _, f := range faults {
		all = append(all, Fault{f.code, f.status, f.kind, f.retryAfter != "" || f.status == http.StatusTooManyRequests, f.means, f.todo})
	}
	return all
}

// These errors have constant messages. They are allocated once, so that a flood of refused requests
// stays cheap. No message of a refusal repeats what the client sent: messages end up in logs, and
// the client may have put a secret in the wrong place.
var (
	errReplaced    = &weir.Error{Code: weir.StorageUnavailable, Message: "another node has deleted the stream and created another one with the same id: send the request again"}
	errCutOff      = &weir.Error{Code: weir.StorageUnavailable, Message: "this node is cut off from the other nodes and cannot know whether the key is still valid: use another node"}
	errNoRoute     = &weir.Error{Code: weir.NotFound, Message: "the API has no such path; paths are case-sensitive and have no trailing slash"}
	errStreamID    = &weir.Error{Code: weir.InvalidStreamID, Message: "invalid stream id in the path: " + weir.ErrStreamID.Error()}
	errNoSuchBatch = &weir.Error{Code: weir.StreamNotFound, Message: "there is no such batch: " + weir.ErrSeq.Error()}
	errSequence    = &weir.Error{Code: weir.InvalidSequence, Message: "invalid sequence number in the path: " + weir.ErrSeq.Error()}
	errRateLimited = &weir.Error{Code: weir.RateLimited, Message: "too many requests in this window; retry after the number of seconds in retry-after"}
	errInternal    = &weir.Error{Code: weir.InternalError, Message: "internal server error; if it persists, give the request id to the operator"}
	errGone        = &weir.Error{Code: weir.StorageUnavailable, Message: "the client disconnected before the outcome of the request was known"}

	errHeader = &weir.Error{Code: weir.InvalidRequest, Message: "the request target and the header fields are larger than 16 KiB together"}

	errPanic = errors.New("panic") // finish has already logged the panic
)

// unknownOutcome is the value of x-svc-outcome (D5).
var unknownOutcome = []string{"unknown"}

// known returns the weir.Error in err, which the client may see, or nil if there is none.
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

// refuse sends an error response. An error that the client may not see is logged, and the response
// only says that there was an internal error.
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
	if e.Code == weir.StreamNotFound && c.created != nil {
		if _, err := c.h.Hub.Stream(weir.StreamID(c.route.id)); err != nil {
			c.created = nil // the stream was deleted since the request began
		}
	}
	f := faultOf[e.Code]
	if e == errHeader {
		f = &headerFault
	}
	if f == nil { // the table lacks this code, which TestFaultTable rules out
		f, e = faultOf[weir.InternalError], errInternal
	}
	if f.status == http.StatusServiceUnavailable && !gone {
		c.complain(f.status, string(f.code))
	}
	c.fault, c.message = f, e.Message
	if e == errInternal {
		c.message = access.Redacted(err.Error())
	}
	h := c.w.Header()
	if e.Unknown {
		h[weir.HeaderOutcome] = unknownOutcome
	}
	if f.retryAfter != "" {
		h["Retry-After"] = []string{f.retryAfter}
	}
	switch f.status {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = bearer
	case http.StatusTooManyRequests:
		h["Retry-After"] = []string{strconv.Itoa(c.window.RetryAfter)}
		if e == errPlaces { // the refusal is about subscriptions, so the time left in the rate window does not matter
			h["Retry-After"] = []string{"5"}
		}
	}
	p := buffers.Get().(*[]byte)
	b := c.appendError(*p, f, e.Message)
	c.answer(f.status, b)
	putBuffer(p, b)
	if gone {
		c.status = 0 // the client did not get the response, so the request does not count as refused
	}
}

// RefuseHeader answers a request whose target and header fields are too large: 431 with the error
// object and the header fields that every response has. It does not count the request in a rate
// window, because over HTTP/1.1 the server cannot always tell which client behind a proxy sent the
// request.
func (h *Handler) RefuseHeader(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	c.h, c.w, c.r, c.id, c.route = h, w, r, newRequestID(), parseRoute(r.URL)
	defer c.finish()
	c.peek()
	c.refuse(errHeader)
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
