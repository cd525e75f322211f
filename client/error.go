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

// Error is a refusal of the service.
type Error struct {
	Status     int           // of the answer
	Type       string        // the category, such as not_found_error
	Code       weir.Code     // what to branch on; empty when the answer did not come from the service but from something before it
	Message    string        // for people
	RequestID  string        // to quote when asking the operator
	DocURL     string        // explains the code
	RetryAfter time.Duration // when to try again, where the service said so
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

// CodeOf is the code of the refusal in an error's chain, empty when there is none.
func CodeOf(err error) weir.Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// maxErrorBody is more than any error of the service has.
const maxErrorBody = 64 << 10

// refusal reads an answer that is not a success.
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
		e.Message = "the answer is not one of Weir: " + resp.Status
		return e
	}
	e.Type, e.Code, e.Message, e.DocURL = body.Error.Type, body.Error.Code, body.Error.Message, body.Error.DocURL
	if e.RequestID == "" {
		e.RequestID = body.Error.RequestID
	}
	return e
}

// strange is an answer that no Weir gives; trying again will not help.
type strange struct{ error }

func (s strange) Unwrap() error { return s.error }

// transient tells whether what failed may succeed later: the way to the service is broken, or the service says so.
func transient(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		switch e.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if _, ok := errors.AsType[strange](err); ok {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	_, plain := errors.AsType[tls.RecordHeaderError](err) // an address that does not speak TLS
	return !plain
}

// retryAfter is what the service asked for, 0 when it did not.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
