package turn_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestStepsOfTurnAreSpans checks that the steps are child spans of the turn's span and have no
// content.
func TestStepsOfTurnAreSpans(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("planted"), endsTurn}})
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	ctx, span := provider.Tracer("test").Start(t.Context(), "turn")
	var p progress
	_, err := st.executor.Run(ctx, st.take(t), &p)
	require.NoError(t, err)
	span.End()
	var names []string
	for _, s := range exporter.GetSpans() {
		names = append(names, s.Name)
		require.Equal(t, span.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
		if s.Name == "turn" {
			require.Len(t, s.Events, 1)
			require.Equal(t, "first event committed", s.Events[0].Name)
			continue
		}
		require.Equal(t, span.SpanContext().SpanID(), s.Parent.SpanID(), s.Name)
		require.Empty(t, s.Attributes)
	}
	require.Equal(t, []string{"attach", "deliver", "flush transcripts", "turn"}, names)
}
