package activities

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// tracer makes spans if the program has set a provider.
var tracer = otel.Tracer("github.com/overwinter-dev/overwinter/activities")

// tracedBy returns ctx in the trace of a W3C traceparent; ctx itself if that is empty.
func tracedBy(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
}
