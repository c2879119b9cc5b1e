package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// counted has the counts of a store, or an error.
type counted struct {
	images     image.Counts
	sessions   []backlog.Count
	unfinished backlog.Unfinished
	err        error
	asked      int
}

func (c *counted) ImageCounts(context.Context, time.Duration) (image.Counts, error) {
	return c.images, c.err
}

func (c *counted) SessionCounts(context.Context) ([]backlog.Count, error) {
	c.asked++
	return c.sessions, c.err
}

func (c *counted) Unfinished(context.Context) (backlog.Unfinished, error) { return c.unfinished, c.err }

func (c *counted) BreakersOpen(context.Context) ([]breaker.Breaker, error) {
	return []breaker.Breaker{{Provider: "modal", Agent: "codex"}}, c.err
}

func (c *counted) Connections() postgres.Connections {
	return postgres.Connections{Used: 3, Idle: 2, Max: 16, Waited: 1500 * time.Millisecond}
}

func TestGaugesMatchDatabase(t *testing.T) {
	t.Parallel()
	store := &counted{err: errors.New("away")}
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(newGauges(store)))
	require.Equal(t, map[string]float64{
		"overwinter_database_up": 0, "overwinter_database_connections used": 3, "overwinter_database_connections idle": 2,
		"overwinter_database_connections max": 16, "overwinter_database_connection_wait_seconds_total": 1.5,
	}, values(t, registry), "there are no values while Postgres is unavailable")
	store.err = nil
	store.images = image.Counts{Unneeded: 1, Failing: 2, Exits: 3, Hidden: 4}
	store.sessions = []backlog.Count{{Status: session.Hibernated, Agent: "demo", Sessions: 1000000}, {Status: session.Error, Agent: "codex", Sessions: 1}}
	store.unfinished = backlog.Unfinished{Questions: 5, Queued: 6, Processing: 7, Oldest: 8 * time.Second}
	for range 2 {
		require.Equal(t, map[string]float64{
			"overwinter_database_up": 1, "overwinter_database_connections used": 3, "overwinter_database_connections idle": 2,
			"overwinter_database_connections max": 16, "overwinter_database_connection_wait_seconds_total": 1.5,
			"overwinter_images unneeded": 1, "overwinter_images failing": 2, "overwinter_images exit_pending": 3, "overwinter_images hidden": 4,
			"overwinter_sessions demo hibernated": 1000000, "overwinter_sessions codex error": 1, "overwinter_questions_open": 5,
			"overwinter_breaker_open codex modal": 1, "overwinter_prompts queued": 6, "overwinter_prompts processing": 7, "overwinter_prompt_oldest_wait_seconds": 8,
		}, values(t, registry))
	}
	require.Equal(t, 2, store.asked, "a count is shown for a while")
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// values returns the metrics of a registry, by name and label values.
func values(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	found, err := from.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, family := range found {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}
