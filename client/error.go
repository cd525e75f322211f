package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"weir"
)

// Error is a response with a status other than 2xx.
type Error struct {
	Status     int           // HTTP status
	Type       string        // category, such as not_found_error
	Code       weir.Code     // for programs to branch on; empty if the response is not from Weir, but from a proxy for example
	Message    string        // for people
	RequestID  string        // for the operator, who can look it up in the server's log
	DocURL     string        // page that explains the code
	RetryAfter time.Duration // how long to wait before a retry; 0 if the service did not say
}

func (e *Error) Error() string {
	code := string(e.Code)
	if code == "" {
		code = "status " + strconv.Itoa(e.Status)
	}
	if e.RequestID == "" {
		return code + ": " + e.Message
	}
	return fmt.Sprintf("%s: %s (%s)", code, e.Message, e.RequestID)
}

// CodeOf returns the code of the [*Error] in an error's chain, or "" if there is none.
func CodeOf(err error) weir.Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// maxErrorBody limits what is read of an error response. Weir's own are much shorter.
const maxErrorBody = 64 << 10

// refusal turns a response without success into an *Error.
func refusal(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("x-request-id")}
	if seconds, err := strconv.Atoi(resp.Header.Get("retry-after")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	var body struct {
		Error struct {
			Type      string    `json:"type"`
			Code      weir.Code `json:"code"`
			Message   string    `json:"message"`
			RequestID string    `json:"request_id"`
			DocURL    string    `json:"doc_url"`
		} `json:"error"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		err = json.Unmarshal(b, &body)
	}
	if err != nil || body.Error.Code == "" {
		e.Message = "the response is not from Weir: " + resp.Status
		return e
	}
	e.Type, e.Code, e.Message, e.DocURL = body.Error.Type, body.Error.Code, body.Error.Message, body.Error.DocURL
	if e.RequestID == "" {
		e.RequestID = body.Error.RequestID
	}
	return e
}

// permanent marks an error that a retry cannot fix: the request cannot be built, or the response is
// one that Weir never sends.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// transient reports whether a retry may succeed: the connection failed, or the status says that the
// problem is temporary.
func transient(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		switch e.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if _, ok := errors.AsType[permanent](err); ok {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	_, plain := errors.AsType[tls.RecordHeaderError](err) // the server at this address does not speak TLS
	return !plain
}

// retryAfter returns how long the service asked the client to wait, or 0 if it did not ask.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
