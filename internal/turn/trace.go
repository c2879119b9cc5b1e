package turn

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// traced runs a step of a turn in a child span of the span in ctx, if there is one.
func traced(ctx context.Context, step string, do func(context.Context) error) error {
	provider := trace.SpanFromContext(ctx).TracerProvider()
	ctx, span := provider.Tracer("github.com/overwinter-dev/overwinter/internal/turn").Start(ctx, step)
	defer span.End()
	err := do(ctx)
	if err != nil {
		span.SetStatus(codes.Error, "") // the error may quote the agent's output
	}
	return err
}
