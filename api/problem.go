package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// statuses is the only mapping of codes to HTTP statuses.
var statuses = map[failure.Code]int{
	failure.Invalid:       http.StatusBadRequest,
	failure.Unauthorized:  http.StatusUnauthorized,
	failure.Forbidden:     http.StatusForbidden,
	failure.NotFound:      http.StatusNotFound,
	failure.NoSession:     http.StatusNotFound,
	failure.NoPrompt:      http.StatusNotFound,
	failure.NoRun:         http.StatusNotFound,
	failure.NoBundle:      http.StatusNotFound,
	failure.NoSecret:      http.StatusNotFound,
	failure.NoProfile:     http.StatusNotFound,
	failure.NoVersion:     http.StatusNotFound,
	failure.NoQuestion:    http.StatusNotFound,
	failure.NoFile:        http.StatusNotFound,
	failure.NoAttachment:  http.StatusNotFound,
	failure.NoWebhook:     http.StatusNotFound,
	failure.NoDelivery:    http.StatusNotFound,
	failure.MethodUnknown: http.StatusMethodNotAllowed,
	failure.NoBundleThere: http.StatusConflict,
	failure.HasForks:      http.StatusConflict,
	failure.RunUnfinished: http.StatusConflict,
	failure.Terminated:    http.StatusConflict,
	failure.InError:       http.StatusConflict,
	failure.WorkspaceUsed: http.StatusConflict,
	failure.SecretMissing: http.StatusConflict,
	failure.PromptExists:  http.StatusConflict,
	failure.NotUnknown:    http.StatusConflict,
	failure.Idempotency:   http.StatusConflict,
	failure.IllegalState:  http.StatusConflict,
	failure.NotQueued:     http.StatusConflict,
	failure.Answered:      http.StatusConflict,
	failure.Expired:       http.StatusConflict,
	failure.Cancelled:     http.StatusConflict,
	failure.NameTaken:     http.StatusConflict,
	failure.Conflict:      http.StatusConflict,
	failure.NotSaved:      http.StatusConflict,
	failure.NotSupported:  http.StatusConflict,
	failure.LimitReached:  http.StatusConflict,
	failure.PositionGone:  http.StatusGone,
	failure.TooLarge:      http.StatusRequestEntityTooLarge,
	failure.QueueFull:     http.StatusTooManyRequests,
	failure.RateLimited:   http.StatusTooManyRequests,
	failure.Unavailable:   http.StatusServiceUnavailable,
	failure.Internal:      http.StatusInternalServerError,
}

// retryAfter is the Retry-After header of temporary errors, in seconds.
const retryAfter = 1

// statusClientGone is logged if the client has disconnected before the response. It is never sent.
const statusClientGone = 499

const problemType = "application/problem+json"

// problem is an RFC 9457 problem with a code.
type problem struct {
	Type   string          `json:"type"`
	Title  string          `json:"title"`
	Status int             `json:"status"`
	Detail string          `json:"detail"`
	Code   failure.Code    `json:"code"`
	Errors []failure.Field `json:"errors,omitempty"`
}

// errorOf returns the public part of err. An error without a code is internal.
func errorOf(err error) *failure.Error {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f
	}
	if gone, ok := errors.AsType[*eventlog.PositionGoneError](err); ok {
		return failure.Errorf(failure.PositionGone,
			"events up to %d have been deleted; read the blocks, then the events after %d", gone.First-1, gone.First-1)
	}
	if future, ok := errors.AsType[*eventlog.FuturePositionError](err); ok {
		return failure.Errorf(failure.Invalid,
			"the position has not been written yet: the newest event is %d", future.Newest)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &failure.Error{Code: failure.Unavailable, Message: "the answer took too long; try again", Err: err}
	}
	if h, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch h.Code {
		case http.StatusNotFound:
			return failure.Errorf(failure.NotFound, "no such endpoint; see /openapi.json")
		case http.StatusMethodNotAllowed:
			return failure.Errorf(failure.MethodUnknown, "method not allowed; the header Allow lists the allowed methods")
		}
	}
	return &failure.Error{Code: failure.Internal, Message: "internal error; the log of the server has this request's id", Err: err}
}

// writeError is Echo's error handler, which writes every error that a handler returns.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if c.Request().Context().Err() != nil && errors.Is(err, context.Canceled) && !s.stopping() {
		c.Response().WriteHeader(statusClientGone)
		return
	}
	if s.stopping() && (errors.Is(err, context.Canceled) || errors.Is(err, errStopping)) { // a stream that was being opened
		err = errServerStops()
	}
	f := errorOf(err)
	status, known := statuses[f.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	if status >= http.StatusInternalServerError {
		level := slog.LevelError
		if f.Code == failure.Unavailable {
			level = slog.LevelWarn
		}
		s.logger.LogAttrs(c.Request().Context(), level, "request failed", append(s.requestAttrs(c), slog.String("error", err.Error()))...)
	}
	header := c.Response().Header()
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(retryAfter))
	case http.StatusUnauthorized:
		header.Set(echo.HeaderWWWAuthenticate, `Bearer realm="overwinter"`)
	case http.StatusMethodNotAllowed:
		if allow, ok := c.Get(echo.ContextKeyHeaderAllow).(string); ok {
			header.Set(echo.HeaderAllow, allow)
		}
	}
	body, err := json.Marshal(problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: f.Message, Code: f.Code, Errors: f.Fields,
	})
	if err != nil {
		s.logger.ErrorContext(c.Request().Context(), "encode problem", slog.Any("error", err))
		return
	}
	if err := c.Blob(status, problemType, body); err != nil {
		s.logger.DebugContext(c.Request().Context(), "write problem", slog.Any("error", err))
	}
}

// invalid returns a 400 error for one field.
func invalid(field, format string, args ...any) *failure.Error {
	message := failure.Errorf("", format, args...).Message
	return &failure.Error{
		Code: failure.Invalid, Message: field + " " + message,
		Fields: []failure.Field{{Field: field, Message: message}},
	}
}
