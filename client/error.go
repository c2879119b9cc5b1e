package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an error response of the server, with its reason.
type Error struct {
	Status int    `json:"status"` // HTTP status
	Code   Code   `json:"code"`
	Detail string `json:"detail"` // a sentence for developers
	// Fields lists the invalid fields of the request, each with the violated rule.
	Fields     []Field       `json:"errors"`
	RetryAfter time.Duration `json:"-"` // zero if the server did not set it
}

// Field is one invalid field of a request.
type Field struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	text := e.Detail
	if len(e.Fields) > 1 {
		parts := make([]string, len(e.Fields))
		for i, f := range e.Fields {
			parts[i] = f.Field + " " + f.Message
		}
		text = strings.Join(parts, "; ")
	}
	return fmt.Sprintf("%s (%s)", text, e.Code)
}

// Code identifies the kind of an error, so that callers can react to it. Codes are stable.
type Code string

// The codes.
const (
	CodeInvalid            Code = "invalid_request"
	CodeUnauthorized       Code = "unauthorized"
	CodeForbidden          Code = "forbidden"
	CodeSessionNotFound    Code = "session_not_found"
	CodePromptNotFound     Code = "prompt_not_found"
	CodeRunNotFound        Code = "run_not_found"
	CodeBundleNotFound     Code = "bundle_not_found"
	CodeNoBundleThere      Code = "no_bundle_there"
	CodeHasForks           Code = "has_forks"
	CodeRunUnfinished      Code = "run_unfinished"
	CodeSecretNotFound     Code = "secret_not_found"
	CodeSecretMissing      Code = "secret_missing"
	CodeProfileNotFound    Code = "profile_not_found"
	CodeVersionNotFound    Code = "profile_version_not_found"
	CodeQuestionNotFound   Code = "question_not_found"
	CodeFileNotFound       Code = "file_not_found"
	CodeAttachmentNotFound Code = "attachment_not_found"
	CodeWebhookNotFound    Code = "webhook_not_found"
	CodeDeliveryNotFound   Code = "delivery_not_found"
	CodeTerminated         Code = "session_terminated"
	CodeInError            Code = "session_in_error"
	CodeWorkspaceUsed      Code = "workspace_in_use"
	CodePromptExists       Code = "prompt_conflict"
	CodeNotUnknown         Code = "prompt_not_unknown"
	CodeIdempotency        Code = "idempotency_conflict"
	CodeNotQueued          Code = "prompt_not_queued"
	CodeAnswered           Code = "question_answered"
	CodeExpired            Code = "question_expired"
	CodeCancelled          Code = "question_cancelled"
	CodeNameTaken          Code = "name_taken"
	CodeConflict           Code = "version_conflict"
	CodeNotSaved           Code = "file_not_saved"
	CodeNotSupported       Code = "not_supported"
	CodeLimitReached       Code = "limit_reached"
	CodeIllegalState       Code = "illegal_state"
	CodeStaleWorkflow      Code = "stale_workflow"
	CodeQueueHeld          Code = "queue_held"
	CodePositionGone       Code = "position_gone"
	CodeTooLarge           Code = "too_large"
	CodeQueueFull          Code = "queue_full"
	CodeRateLimited        Code = "rate_limited"
	CodeUnavailable        Code = "unavailable"
	CodeInternal           Code = "internal"
	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
)

// readError converts a response to an Error, even if the response is not from overwinter.
func readError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{}
	if err != nil || json.Unmarshal(data, e) != nil || e.Code == "" {
		e = &Error{Code: CodeInternal, Detail: "the server answers " + resp.Status}
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
