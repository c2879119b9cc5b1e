package session

import (
	"errors"
	"fmt"
)

// Code says what callers can do about an error; people read the message.
type Code string

// The codes of CONTRACT. One table in api maps them to HTTP.
const (
	CodeInvalid       Code = "invalid_request"
	CodeUnauthorized  Code = "unauthorized"
	CodeForbidden     Code = "forbidden"
	CodeNoSession     Code = "session_not_found"
	CodeNoPrompt      Code = "prompt_not_found"
	CodeNoRun         Code = "run_not_found"
	CodeNoBundle      Code = "bundle_not_found"
	CodeNoSecret      Code = "secret_not_found"
	CodeNoProfile     Code = "profile_not_found"
	CodeNoQuestion    Code = "question_not_found"
	CodeNoFile        Code = "file_not_found"
	CodeTerminated    Code = "session_terminated"
	CodeInError       Code = "session_in_error"
	CodePromptExists  Code = "prompt_conflict"
	CodeIdempotency   Code = "idempotency_conflict"
	CodeIllegalState  Code = "illegal_state"
	CodeStaleWorkflow Code = "stale_workflow"
	CodePositionGone  Code = "position_gone"
	CodeTooLarge      Code = "too_large"
	CodeQueueFull     Code = "queue_full"
	CodeRateLimited   Code = "rate_limited"
	CodeUnavailable   Code = "unavailable"
	CodeInternal      Code = "internal"
	CodeNotFound      Code = "not_found"
	CodeMethodUnknown Code = "method_not_allowed"
)

// Fault is an error with a code, the only error that crosses package borders on
// purpose. Fields name what was wrong with an input and the bound it broke.
type Fault struct { //nolint:errname // the word of this house for it
	Code    Code
	Message string
	Fields  []FieldFault
	Err     error // the cause, for logs only
}

// FieldFault is one wrong field of an input.
type FieldFault struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (f *Fault) Error() string {
	if f.Err != nil {
		return f.Message + ": " + f.Err.Error()
	}
	return f.Message
}

func (f *Fault) Unwrap() error { return f.Err }

// Faultf makes a fault with a code and a message.
func Faultf(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first fault in err's chain, CodeInternal for
// any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Code
	}
	return CodeInternal
}
