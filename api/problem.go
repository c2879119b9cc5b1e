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
	"github.com/overwinter-dev/overwinter/internal/session"
)

// statuses maps codes to HTTP; it is the only place that does.
var statuses = map[session.Code]int{
	session.CodeInvalid:       http.StatusBadRequest,
	session.CodeUnauthorized:  http.StatusUnauthorized,
	session.CodeForbidden:     http.StatusForbidden,
	session.CodeNotFound:      http.StatusNotFound,
	session.CodeNoSession:     http.StatusNotFound,
	session.CodeNoPrompt:      http.StatusNotFound,
	session.CodeNoRun:         http.StatusNotFound,
	session.CodeNoBundle:      http.StatusNotFound,
	session.CodeNoSecret:      http.StatusNotFound,
	session.CodeNoProfile:     http.StatusNotFound,
	session.CodeNoQuestion:    http.StatusNotFound,
	session.CodeNoFile:        http.StatusNotFound,
	session.CodeMethodUnknown: http.StatusMethodNotAllowed,
	session.CodeTerminated:    http.StatusConflict,
	session.CodeInError:       http.StatusConflict,
	session.CodePromptExists:  http.StatusConflict,
	session.CodeIdempotency:   http.StatusConflict,
	session.CodeIllegalState:  http.StatusConflict,
	session.CodePositionGone:  http.StatusGone,
	session.CodeTooLarge:      http.StatusRequestEntityTooLarge,
	session.CodeQueueFull:     http.StatusTooManyRequests,
	session.CodeRateLimited:   http.StatusTooManyRequests,
	session.CodeUnavailable:   http.StatusServiceUnavailable,
	session.CodeInternal:      http.StatusInternalServerError,
}

// retryAfter is the Retry-After of answers that ask to come again, in seconds.
const retryAfter = 1

// statusClientGone is logged if the client has left before the response; it is never sent.
const statusClientGone = 499

const problemType = "application/problem+json"

// problem is an error as RFC 9457 wants it, with our code.
type problem struct {
	Type   string               `json:"type"`
	Title  string               `json:"title"`
	Status int                  `json:"status"`
	Detail string               `json:"detail"`
	Code   session.Code         `json:"code"`
	Errors []session.FieldFault `json:"errors,omitempty"`
}

// faultOf says what a client may know of err. Whatever has no code is internal.
func faultOf(err error) *session.Fault {
	if f, ok := errors.AsType[*session.Fault](err); ok {
		return f
	}
	if gone, ok := errors.AsType[*eventlog.PositionGoneError](err); ok {
		return session.Faultf(session.CodePositionGone,
			"events up to %d have been deleted; read the blocks, then the events after %d", gone.First-1, gone.First-1)
	}
	if future, ok := errors.AsType[*eventlog.FuturePositionError](err); ok {
		return session.Faultf(session.CodeInvalid,
			"the position has not been written yet: the newest event is %d", future.Newest)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &session.Fault{Code: session.CodeUnavailable, Message: "the answer took too long; try again", Err: err}
	}
	if h, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch h.Code {
		case http.StatusNotFound:
			return session.Faultf(session.CodeNotFound, "no such endpoint; see /openapi.json")
		case http.StatusMethodNotAllowed:
			return session.Faultf(session.CodeMethodUnknown, "this path does not take that method; Allow lists those it takes")
		}
	}
	return &session.Fault{Code: session.CodeInternal, Message: "internal error; the log of the server has this request's id", Err: err}
}

// writeError is Echo's error handler: every error that a handler returns ends here.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if c.Request().Context().Err() != nil && errors.Is(err, context.Canceled) && !s.stopping() {
		c.Response().WriteHeader(statusClientGone)
		return
	}
	f := faultOf(err)
	status, known := statuses[f.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	if status >= http.StatusInternalServerError {
		level := slog.LevelError
		if f.Code == session.CodeUnavailable {
			level = slog.LevelWarn
		}
		s.log.LogAttrs(c.Request().Context(), level, "request failed", append(s.requestAttrs(c), slog.String("error", err.Error()))...)
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
		s.log.ErrorContext(c.Request().Context(), "encode problem", slog.Any("error", err))
		return
	}
	if err := c.Blob(status, problemType, body); err != nil {
		s.log.DebugContext(c.Request().Context(), "write problem", slog.Any("error", err))
	}
}

// invalid is a 400 for one field.
func invalid(field, format string, args ...any) *session.Fault {
	message := session.Faultf("", format, args...).Message
	return &session.Fault{
		Code: session.CodeInvalid, Message: field + " " + message,
		Fields: []session.FieldFault{{Field: field, Message: message}},
	}
}
