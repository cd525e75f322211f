package weir

import "fmt"

// Code names a fault in a form that programs branch on. Which HTTP status it has is known to the interface alone.
type Code string

// Every code of the interface: first those of the specification, then the few of our own (D26).
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

	NotFound           Code = "not_found"
	MethodNotAllowed   Code = "method_not_allowed"
	InternalError      Code = "internal_error"
	StorageUnavailable Code = "storage_unavailable"
	Overloaded         Code = "overloaded"
)

// Error is what a caller may know of a fault. Anything else that went wrong is logged and hidden behind InternalError.
type Error struct {
	Code    Code
	Message string
}

// Errorf makes an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }
