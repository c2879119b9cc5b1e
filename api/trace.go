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
	return otelhttp.NewHandler(s, "request")
}

// traceOf is the trace that a request belongs to, as a W3C traceparent; empty if it is not traced.
func traceOf(c echo.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(c.Request().Context(), carrier)
	return carrier["traceparent"]
}
