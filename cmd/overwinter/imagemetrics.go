package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/image"
)

// imageCountAge is how long a count of images is shown before they are counted again.
const imageCountAge = 10 * time.Second

// imageCounter counts images. *postgres.DB is one.
type imageCounter interface {
	ImageCounts(ctx context.Context, age time.Duration) (image.Counts, error)
}

// imageCollector shows the images that wait for something.
type imageCollector struct {
	counter imageCounter
	desc    *prometheus.Desc

	mu     sync.Mutex
	at     time.Time
	counts image.Counts
}

// imageMetrics returns what to gather the counts from.
func imageMetrics(counter imageCounter) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&imageCollector{counter: counter, desc: prometheus.NewDesc(
		"overwinter_images", "Images at the provider that wait to be deleted or found, by state.", []string{"state"}, nil,
	)})
	return registry
}

// Describe implements prometheus.Collector.
func (c *imageCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector. Without Postgres there is nothing to show.
func (c *imageCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > imageCountAge {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		counts, err := c.counter.ImageCounts(ctx, activities.HiddenAge)
		if err != nil {
			return
		}
		c.at, c.counts = time.Now(), counts
	}
	for state, n := range map[string]int64{
		"unneeded": c.counts.Unneeded, "failing": c.counts.Failing, "exit_pending": c.counts.Exits, "hidden": c.counts.Hidden,
	} {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
