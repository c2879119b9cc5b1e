package api

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// within executes a request to the API on behalf of another request, with the key and address of
// that request, by the same rules as for requests of clients.
func (s *Server) within(ctx context.Context, caller *http.Request, requestID, method, target string, body []byte) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadRequest, nil
	}
	r.Host, r.RemoteAddr = caller.Host, caller.RemoteAddr
	for _, name := range []string{echo.HeaderAuthorization} {
		if value := caller.Header.Get(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	r.Header.Set(echo.HeaderXRequestID, requestID)
	r.Header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	w := &heldResponse{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if caught := recover(); caught != nil {
			s.logger.ErrorContext(ctx, "handler panicked", slog.Any("panic", caught), slog.String("stack", string(debug.Stack())))
			status, answer = http.StatusInternalServerError, nil
		}
	}()
	s.echo.ServeHTTP(w, r)
	return w.status, w.body.Bytes()
}

// heldResponse is a response that is held in memory.
type heldResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *heldResponse) Header() http.Header            { return w.header }
func (w *heldResponse) WriteHeader(status int)         { w.status = status }
func (w *heldResponse) Write(data []byte) (int, error) { return w.body.Write(data) }

// refusal returns the error that an answer describes.
func refusal(answer []byte) *failure.Error {
	var p problem
	if json.Unmarshal(answer, &p) != nil || p.Code == "" {
		return failure.Errorf(failure.Internal, "internal error; the log of the server has this request's id")
	}
	return &failure.Error{Code: p.Code, Message: p.Detail, Fields: p.Errors}
}
