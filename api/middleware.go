package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var requestID = regexp.MustCompile(`^[\x21-\x7e]{1,64}$`)

// identify assigns an id to every request: the id that the caller sent, if it is valid, or a new
// one.
func (s *Server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !requestID.MatchString(id) {
			id = uuid.NewString()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

// idOfRequest returns the id that identify assigned to a request.
func idOfRequest(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// route names a request in logs and metrics. All unknown routes share one name, so that callers
// cannot create an unlimited number of labels.
func (s *Server) route(c echo.Context) (method, route string) {
	method, route = c.Request().Method, c.Path()
	if s.known[method+" "+route] {
		return method, route
	}
	return "other", "other"
}

// requestAttrs returns the log attributes of a request: its route, never its query.
func (s *Server) requestAttrs(c echo.Context) []slog.Attr {
	method, route := s.route(c)
	attrs := []slog.Attr{
		slog.String("method", method),
		slog.String("route", route),
		slog.String("request_id", idOfRequest(c)),
	}
	if id := c.Param("id"); session.ValidID(session.SessionPrefix, id) {
		attrs = append(attrs, slog.String("session_id", id))
	}
	return attrs
}

// reads reports whether requests of a method change nothing.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// observe logs and measures each request. Successful reads are logged at the level debug.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		defer func() { // even if a handler aborts the connection
			took := time.Since(start)
			status := c.Response().Status
			method, route := s.route(c)
			s.metrics.request(method, route, status, took)
			trace.SpanFromContext(c.Request().Context()).SetName(method + " " + route)
			level := slog.LevelInfo
			if open[route] || route == metricsRoute || status < http.StatusBadRequest && reads(method) {
				level = slog.LevelDebug // clients poll
			}
			s.logger.LogAttrs(context.WithoutCancel(c.Request().Context()), level, "request", append(s.requestAttrs(c),
				slog.Int("status", status),
				slog.Int64("bytes", c.Response().Size),
				slog.Float64("duration_ms", float64(took.Microseconds())/1000),
				slog.String("remote_ip", c.RealIP()),
			)...)
		}()
		if err := next(c); err != nil {
			c.Error(err)
		}
		return nil
	}
}

// recoverPanics turns a panic into an internal error; the log gets the stack.
func (s *Server) recoverPanics(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			caught := recover()
			if caught == nil {
				return
			}
			if cause, ok := caught.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
				panic(caught)
			}
			s.logger.LogAttrs(c.Request().Context(), slog.LevelError, "handler panicked",
				append(s.requestAttrs(c), slog.Any("panic", caught), slog.String("stack", string(debug.Stack())))...)
			if c.Response().Committed {
				panic(http.ErrAbortHandler) // a partial response must not look complete
			}
			err = fmt.Errorf("panic: %v", caught)
		}()
		return next(c)
	}
}

// refuseForeignHosts restricts a server without a key to requests whose Host names this machine.
// Otherwise a page whose name resolves to loopback would pass every check of origins.
func (s *Server) refuseForeignHosts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.cfg.WithoutKey && !loopback(c.Request().Host) {
			return failure.Errorf(failure.Forbidden, "without a key, this server accepts requests for localhost and loopback addresses only, not for %q", c.Request().Host)
		}
		return next(c)
	}
}

// loopback reports whether a Host header is a loopback name or address of this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// refuseForeignUsers restricts a server without a key to the users that Config.Callers admits,
// because every user of the machine can reach a loopback address. Health checks are public.
func (s *Server) refuseForeignUsers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !s.cfg.WithoutKey || s.cfg.Callers == nil || open[c.Request().URL.Path] {
			return next(c)
		}
		local, _ := c.Request().Context().Value(http.LocalAddrContextKey).(net.Addr) // net/http sets it
		remote, err := net.ResolveTCPAddr("tcp", c.Request().RemoteAddr)
		if err == nil {
			err = s.cfg.Callers(local, remote)
		}
		if err != nil {
			return &failure.Error{Code: failure.Forbidden, Message: "without a key this server serves only the users of this machine that it was started for; see --allow-users", Err: err}
		}
		return next(c)
	}
}

// refuseForeignOrigins prevents web pages of other origins from sending commands through a user's
// browser.
func (s *Server) refuseForeignOrigins(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := s.origins.Check(c.Request()); err != nil {
			return &failure.Error{Code: failure.Forbidden, Message: "requests from another origin may not change anything", Err: err}
		}
		return next(c)
	}
}

// authorize requires the key if the server has one.
func (s *Server) authorize(next echo.HandlerFunc) echo.HandlerFunc {
	guard := newKeyGuard(s.cfg.Key.Reveal(), s.cfg.keyDelay)
	return func(c echo.Context) error {
		if s.cfg.WithoutKey || open[c.Request().URL.Path] {
			return next(c)
		}
		given := c.Request().Header.Get(echo.HeaderAuthorization)
		if given == "" && tokenRoutes[c.Path()] && c.QueryParam("token") != "" {
			return s.withToken(c, next)
		}
		scheme, key, _ := strings.Cut(given, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return failure.Errorf(failure.Unauthorized, "the API key is missing; send it as Authorization: Bearer KEY")
		}
		switch guard.check(c.Request().Context(), c.RealIP(), key) {
		case keyWrong:
			return failure.Errorf(failure.Unauthorized, "the API key is wrong; send it as Authorization: Bearer KEY")
		case keyBusy:
			return failure.Errorf(failure.RateLimited, "too many requests with a wrong API key from this address; wait a few seconds")
		case keyRight:
		}
		return next(c)
	}
}

// bound gives every request that is not a stream its deadline.
func (s *Server) bound(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		switch c.Path() {
		case eventsRoute, streamRoute, lifecycleRoute, socketRoute, changesRoute, transcriptRoute, aiRoute, aiStreamRoute, aiMessagesRoute, aguiRoute, exportRoute, importRoute, runsRoute, runRoute:
			return next(c)
		}
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.RequestTimeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		return next(c)
	}
}
