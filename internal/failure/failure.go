// Package failure has the errors that cross package boundaries: each has a code, which determines
// how a caller can react.
package failure

import (
	"errors"
	"fmt"
)

// Code determines how callers can react to an error; the message is for people.
type Code string

// The codes. One table in api maps them to HTTP.
const (
	Invalid       Code = "invalid_request"
	Unauthorized  Code = "unauthorized"
	Forbidden     Code = "forbidden"
	NoSession     Code = "session_not_found"
	NoPrompt      Code = "prompt_not_found"
	NoRun         Code = "run_not_found"
	NoBundle      Code = "bundle_not_found"
	NoBundleThere Code = "no_bundle_there"
	HasForks      Code = "has_forks"
	RunUnfinished Code = "run_unfinished"
	NoSecret      Code = "secret_not_found"
	SecretMissing Code = "secret_missing"
	NoProfile     Code = "profile_not_found"
	NoVersion     Code = "profile_version_not_found"
	NoQuestion    Code = "question_not_found"
	NoFile        Code = "file_not_found"
	NoAttachment  Code = "attachment_not_found"
	NoWebhook     Code = "webhook_not_found"
	NoDelivery    Code = "delivery_not_found"
	Terminated    Code = "session_terminated"
	InError       Code = "session_in_error"
	WorkspaceUsed Code = "workspace_in_use"
	PromptExists  Code = "prompt_conflict"
	NotUnknown    Code = "prompt_not_unknown"
	Idempotency   Code = "idempotency_conflict"
	NotQueued     Code = "prompt_not_queued"
	Answered      Code = "question_answered"
	Expired       Code = "question_expired"
	Cancelled     Code = "question_cancelled"
	NameTaken     Code = "name_taken"
	Conflict      Code = "version_conflict"
	NotSaved      Code = "file_not_saved"
	NotSupported  Code = "not_supported"
	LimitReached  Code = "limit_reached"
	IllegalState  Code = "illegal_state"
	StaleWorkflow Code = "stale_workflow"
	QueueHeld     Code = "queue_held"
	PositionGone  Code = "position_gone"
	TooLarge      Code = "too_large"
	QueueFull     Code = "queue_full"
	RateLimited   Code = "rate_limited"
	Unavailable   Code = "unavailable"
	Internal      Code = "internal"
	NotFound      Code = "not_found"
	MethodUnknown Code = "method_not_allowed"
)

// Error is an error with a code, the only error type that crosses package boundaries. Fields names
// the invalid parts of an input and the violated bounds.
type Error struct {
	Code    Code
	Message string
	Fields  []Field
	Err     error // the cause, for logs only
}

// Field is one invalid field of an input.
type Field struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a code and a message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first Error in err's chain, Internal for
// any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}
