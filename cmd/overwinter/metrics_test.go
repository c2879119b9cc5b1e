package main

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/metrics"
)

// TestMetricsAreDocumented compares the list in docs/operations.md with the registered metrics of
// workers and apis, both ways.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(overwinter_[a-z_]+)(\\{[a-z,]+\\})?` \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1]+row[2])
	}
	slices.Sort(listed)
	registered := registeredMetrics(t)
	require.Equal(t, registered, listed, "the table of metrics in docs/operations.md")
	names := map[string]bool{}
	for _, m := range registered {
		name, _, _ := strings.Cut(m, "{")
		names[name] = true
	}
	for _, name := range regexp.MustCompile(`\boverwinter_[a-z_]+[a-z]\b`).FindAllString(string(text), -1) {
		require.True(t, names[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")],
			"docs/operations.md names %s, which no process has", name)
	}
}

// registeredMetrics returns the sorted metrics of an api and a worker with their labels:
// name{label,label}.
func registeredMetrics(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	_, err := api.New(api.Config{
		Store: apitest.NewStore(), Signaler: &apitest.Signaler{}, Events: apitest.NewStore(), Agents: catalog.Agents(),
		WithoutKey: true, Registry: registry,
	})
	require.NoError(t, err)
	require.NoError(t, registry.Register(newGauges(&counted{})))
	metrics.NewWorker(registry)
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		registry.Describe(found)
	}()
	description := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	var names []string
	for d := range found {
		parts := description.FindStringSubmatch(d.String())
		require.NotNil(t, parts, d)
		name := parts[1]
		if parts[2] != "" {
			name += "{" + parts[2] + "}"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestMetricsOfTemporalAndProcessAreServed(t *testing.T) {
	t.Parallel()
	registry, err := newRegistry()
	require.NoError(t, err)
	client, err := temporalFlags{TemporalAddress: "127.0.0.1:1", TemporalNamespace: "default"}.dial(slog.New(slog.DiscardHandler), registry)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err = client.CheckHealth(ctx, nil)
	require.Error(t, err)
	found, err := registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, family := range found {
		names = append(names, family.GetName())
	}
	for _, name := range []string{"go_goroutines", "process_open_fds", "temporal_request"} {
		require.Contains(t, names, name)
	}
}
