package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir"
)

// Error is a response with a status other than 2xx.
type Error struct {
	Status     int           // HTTP status
	Type       string        // category, such as not_found_error
	Code       weir.Code     // error code, for programs to branch on; empty if the response is not from Weir but, for example, from a proxy
	Message    string        // description for people
	RequestID  string        // id of the request, which the operator can look up in the server's log
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

// CodeOf returns the code of the [*Error] in an error's chain, or "" if the chain has no [*Error].
func CodeOf(err error) weir.Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// maxErrorBody limits how much of an error response is read. Weir's own error responses are much
// shorter.
const maxErrorBody = 64 << 10

// refusal turns a response with a status other than 2xx into an *Error.
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
	if err != nil || !isCode(string(body.Error.Code)) {
		e.RetryAfter = min(e.RetryAfter, foreignPause)
		e.Message = "the response is not from Weir: " + resp.Status
		if to, err := resp.Location(); err == nil {
			e.Message += "; it redirects to " + to.Redacted() + ": use that address if it is the service"
		}
		return e
	}
	e.Type, e.Code, e.Message, e.DocURL = body.Error.Type, body.Error.Code, body.Error.Message, body.Error.DocURL
	if e.RequestID == "" {
		e.RequestID = body.Error.RequestID
	}
	return e
}

// isCode reports whether text has the form of Weir's error codes: lower-case letters and underscores.
// Some hosting platforms answer in place of the service with an error object that looks like Weir's,
// but has a code such as "404" or "NOT_FOUND".
func isCode(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// foreignPause limits the pause before a retry that a response asks for, if the response is not
// from Weir. A proxy cannot know when the service will be back, and maintenance pages often ask for
// hours.
const foreignPause = time.Minute

// permanent wraps an error that a retry cannot fix, for example because the request cannot be built
// or a batch cannot be decoded.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// keyless wraps the error of a request that could not be sent, because the client has no key.
type keyless struct{ error }

func (k keyless) Unwrap() error { return k.error }

// alien is the error for a response that Weir never sends. A captive portal, an ingress or a proxy
// may answer in place of the service for a while, so a retry may succeed.
type alien struct{ error }

func (a alien) Unwrap() error { return a.error }

func foreign(format string, a ...any) error {
	return alien{fmt.Errorf("the response is not from Weir: "+format+"; check the service URL", a...)}
}

// UnknownError means that a publish failed and that it is not known whether the batch is stored: at
// least one attempt was sent, and no response says that this attempt stored nothing. To find out,
// repeat the call with the same key or sequence number. A repeated call does not store the batch
// twice.
type UnknownError struct {
	Key string   // idempotency key for [Client.PublishOnce]; empty if the caller chose a sequence number
	Seq weir.Seq // sequence number for [Client.PublishAt], if Key is empty
	Err error    // error of the last attempt
}

func (e *UnknownError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("outcome unknown: batch %d may be stored; repeat the call to find out: %v", e.Seq, e.Err)
	}
	return fmt.Sprintf("outcome unknown: the batch may be stored; repeat the call with the idempotency key %s to find out: %v", e.Key, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// transient reports whether a retry may succeed. That is the case if the connection failed, if the
// status says that the problem is temporary, or if the response came from a system between client
// and service.
func (c *Client) transient(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Code == "" {
			return true
		}
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
	// The two TLS errors below are permanent until the service has answered a request, because the
	// certificate or the URL is probably wrong. After that they are transient: another server
	// probably answers in place of the service for a while.
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return c.reached.Load()
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain { // the server at this address does not speak TLS
		return c.reached.Load()
	}
	return true
}

// lost reports whether the service may have carried out a request that failed with err, so that
// only the response was lost.
func lost(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code == "" || e.Status >= 500
	}
	if _, ok := errors.AsType[permanent](err); ok {
		return false
	}
	if _, ok := errors.AsType[keyless](err); ok {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false // no connection was opened
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// retryAfter returns how long the service asked the client to wait, or 0 if it did not ask.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
