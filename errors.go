package weir

import "fmt"

// Code identifies an error in a form that programs can branch on. The HTTP status of each code is
// decided in package api, not here.
type Code string

// The codes that clients can receive: first those of the original API, then later additions (D26).
const (
	MissingAPIKey        Code = "missing_api_key"
	InvalidAPIKey        Code = "invalid_api_key"
	KeyRevoked           Code = "key_revoked"
	ProjectForbidden     Code = "project_forbidden"
	StreamLimitReached   Code = "stream_limit_reached"
	InvalidRequest       Code = "invalid_request_error"
	InvalidStreamID      Code = "invalid_stream_id"
	StreamNotFound       Code = "stream_not_found"
	StreamNameTaken      Code = "stream_name_taken"
	InvalidSequence      Code = "invalid_sequence"
	PayloadTooLarge      Code = "payload_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	RetentionOutOfRange  Code = "retention_out_of_range"
	SequenceTooFarAhead  Code = "sequence_too_far_ahead"
	RateLimited          Code = "rate_limited"

	SequenceNotNext    Code = "sequence_not_next"
	StreamClosed       Code = "stream_closed"
	NotFound           Code = "not_found"
	MethodNotAllowed   Code = "method_not_allowed"
	InternalError      Code = "internal_error"
	StorageUnavailable Code = "storage_unavailable"
	Overloaded         Code = "overloaded"
)

// Error is an error whose code and message a client may see. Any other error is logged, and the
// client receives InternalError without details.
type Error struct {
	Code    Code
	Message string
	Unknown bool // the request may have been carried out: its outcome is unknown
}

// Errorf returns an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }
