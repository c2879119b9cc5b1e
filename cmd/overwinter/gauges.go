package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// gaugesAge is the maximum age of counts from Postgres before they are read again.
const gaugesAge = 10 * time.Second

// gaugesTimeout bounds the time for which a scrape waits for Postgres.
const gaugesTimeout = 2 * time.Second

// counter counts stored rows. *postgres.DB is one.
type counter interface {
	pool
	ImageCounts(ctx context.Context, age time.Duration) (image.Counts, error)
	SessionCounts(ctx context.Context) ([]backlog.Count, error)
	Unfinished(ctx context.Context) (backlog.Unfinished, error)
	BreakersOpen(ctx context.Context) ([]breaker.Breaker, error)
}

// pool has connections to Postgres. *postgres.DB is one.
type pool interface {
	Connections() postgres.Connections
}

// Descriptions of the counts from Postgres. Every worker shows the same numbers.
var (
	sessionsDesc  = prometheus.NewDesc("overwinter_sessions", "Sessions by status and agent.", []string{"status", "agent"}, nil)
	questionsDesc = prometheus.NewDesc("overwinter_questions_open", "Open questions.", nil, nil)
	promptsDesc   = prometheus.NewDesc("overwinter_prompts", "Unfinished prompts, by status: queued or processing.", []string{"status"}, nil)
	oldestDesc    = prometheus.NewDesc("overwinter_prompt_oldest_wait_seconds",
		"How long the first prompt has waited whose session processes no other prompt and is not in error; 0 if there is none.", nil, nil)
	imagesDesc   = prometheus.NewDesc("overwinter_images", "Images at the provider that wait to be deleted or found, by state.", []string{"state"}, nil)
	breakersDesc = prometheus.NewDesc("overwinter_breaker_open",
		"1 for each open circuit breaker for sandbox starts, by provider and agent; none otherwise.", []string{"provider", "agent"}, nil)
	upDesc = prometheus.NewDesc("overwinter_database_up", "1 if Postgres has counted within the last seconds, 0 if it could not.", nil, nil)
)

// gauges reports the waiting work in Postgres, and the pool of connections to it.
type gauges struct {
	poolGauges
	counter counter

	mu     sync.Mutex
	at     time.Time
	counts []prometheus.Metric
}

func newGauges(c counter) *gauges { return &gauges{poolGauges: *newPoolGauges(c), counter: c} }

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	g.poolGauges.Describe(out)
	for _, d := range []*prometheus.Desc{sessionsDesc, questionsDesc, promptsDesc, oldestDesc, imagesDesc, breakersDesc, upDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector. If Postgres is unavailable, it reports the pool and that
// Postgres is down.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	g.poolGauges.Collect(out)
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) > gaugesAge {
		counts, err := g.count()
		if err != nil {
			out <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, 0)
			return
		}
		g.at, g.counts = time.Now(), counts
	}
	for _, m := range g.counts {
		out <- m
	}
}

func (g *gauges) count() ([]prometheus.Metric, error) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	sessions, err := g.counter.SessionCounts(ctx)
	if err != nil {
		return nil, err
	}
	unfinished, err := g.counter.Unfinished(ctx)
	if err != nil {
		return nil, err
	}
	images, err := g.counter.ImageCounts(ctx, activities.HiddenAge)
	if err != nil {
		return nil, err
	}
	breakers, err := g.counter.BreakersOpen(ctx)
	if err != nil {
		return nil, err
	}
	var counts []prometheus.Metric
	add := func(d *prometheus.Desc, n float64, labels ...string) {
		counts = append(counts, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...))
	}
	for _, c := range sessions {
		add(sessionsDesc, float64(c.Sessions), string(c.Status), c.Agent)
	}
	add(questionsDesc, float64(unfinished.Questions))
	add(promptsDesc, float64(unfinished.Queued), string(session.PromptQueued))
	add(promptsDesc, float64(unfinished.Processing), string(session.PromptProcessing))
	add(oldestDesc, unfinished.Oldest.Seconds())
	add(imagesDesc, float64(images.Unneeded), "unneeded")
	add(imagesDesc, float64(images.Failing), "failing")
	add(imagesDesc, float64(images.Exits), "exit_pending")
	add(imagesDesc, float64(images.Hidden), "hidden")
	for _, b := range breakers {
		add(breakersDesc, 1, b.Provider, b.Agent)
	}
	add(upDesc, 1)
	return counts, nil
}

// poolGauges shows the connections of this process to Postgres.
type poolGauges struct {
	pool        pool
	connections *prometheus.Desc
	waited      *prometheus.Desc
}

func newPoolGauges(p pool) *poolGauges {
	return &poolGauges{
		pool: p,
		connections: prometheus.NewDesc("overwinter_database_connections",
			"Connections of this process's pool to Postgres, by state: used, idle, or max, which is its size.", []string{"state"}, nil),
		waited: prometheus.NewDesc("overwinter_database_connection_wait_seconds_total",
			"Total time that calls of this process have waited for a connection.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *poolGauges) Describe(out chan<- *prometheus.Desc) { out <- g.connections; out <- g.waited }

// Collect implements prometheus.Collector.
func (g *poolGauges) Collect(out chan<- prometheus.Metric) {
	c := g.pool.Connections()
	for state, n := range map[string]int{"used": c.Used, "idle": c.Idle, "max": c.Max} {
		out <- prometheus.MustNewConstMetric(g.connections, prometheus.GaugeValue, float64(n), state)
	}
	out <- prometheus.MustNewConstMetric(g.waited, prometheus.CounterValue, c.Waited.Seconds())
}
