package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestRequestIsTraced exports to a receiver in this process. It sets variables and the global provider of traces.
func TestRequestIsTraced(t *testing.T) {
	var mu sync.Mutex
	var spans []*otlp.Span
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans = append(spans, scope.GetSpans()...)
			}
		}
	}))
	defer receiver.Close()
	require.False(t, tracingWanted())
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	require.True(t, tracingWanted())
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	require.False(t, tracingWanted())
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")

	on, stopTracing, err := startTracing(t.Context(), "api")
	require.NoError(t, err)
	require.True(t, on)
	store := apitest.NewStore()
	server, err := api.New(api.Config{
		Store: store, Signaler: &apitest.Signaler{}, Events: store, Agents: catalog.Agents(), WithoutKey: true, Traced: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	id := store.Put(session.Running)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+ln.Addr().String()+"/api/sessions/"+id+"/prompts",
		strings.NewReader(`{"id": "p1", "content": "the text of a prompt"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusAccepted, answer.StatusCode)
	answer, err = http.Get("http://" + ln.Addr().String() + "/api/sessions/" + id + "/stream?token=owst_of-a-page")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	cancel()
	require.NoError(t, <-done)
	stopTracing()

	stored, err := store.PromptGet(t.Context(), id, "p1")
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, spans, 2)
	require.NotContains(t, spans[1].String(), "owst_", "spans have no query")
	require.Equal(t, "POST /api/sessions/:id/prompts", spans[0].GetName())
	require.Regexp(t, `^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$`, stored.TraceParent, "the trace that the turn continues")
	require.NotContains(t, stored.TraceParent, "00f067aa0ba902b7", "it is the span of the request")
	require.NotContains(t, spans[0].String(), "the text of a prompt")
}
