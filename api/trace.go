package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
)

// traced is the server with a span for each request, named by its route. The spans have neither queries nor bodies.
func (s *Server) traced() http.Handler {
	if !s.cfg.Traced {
		return s
	}
	return otelhttp.NewHandler(s, "request", otelhttp.WithFilter(isCall))
}

// isCall excludes the probes and scrapes of monitoring from traces.
func isCall(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/metrics":
		return false
	}
	return true
}

// traceOf returns the W3C traceparent of a request; empty if it is not traced.
func traceOf(c echo.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(c.Request().Context(), carrier)
	return carrier["traceparent"]
}
