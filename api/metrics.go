package api

import (
	"fmt"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's own metrics.
type metrics struct {
	registry      *prometheus.Registry
	durations     *prometheus.HistogramVec
	requests      *prometheus.CounterVec
	streams       prometheus.Gauge
	events        prometheus.Counter
	dropped       prometheus.Counter
	sessions      prometheus.Counter
	prompts       prometheus.Counter
	failedSignals prometheus.Counter
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		registry: registry,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "overwinter_api_request_duration_seconds", Help: "Time to answer, by route; streams are not in it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overwinter_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"method", "route", "status"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overwinter_api_streams_open", Help: "Event streams that are open now.",
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overwinter_api_stream_events_total", Help: "Events sent to streams.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overwinter_api_streams_dropped_total", Help: "Streams cut because their reader was slow.",
		}),
		sessions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overwinter_api_sessions_created_total", Help: "Sessions created.",
		}),
		prompts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overwinter_api_prompts_accepted_total", Help: "Prompts accepted.",
		}),
		failedSignals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overwinter_api_ring_failures_total", Help: "Requests stored whose workflow could not be signaled; a relay signals it later.",
		}),
	}
	for _, c := range []prometheus.Collector{m.durations, m.requests, m.streams, m.events, m.dropped, m.sessions, m.prompts, m.failedSignals} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("api: register metrics: %w", err)
		}
	}
	return m, nil
}

// request counts one request.
func (m *metrics) request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	if route != eventsRoute && route != socketRoute && route != changesRoute && route != aiRoute && route != aiStreamRoute && route != aguiRoute {
		m.durations.WithLabelValues(method, route).Observe(took.Seconds())
	}
}

func (m *metrics) handler() echo.HandlerFunc {
	return echo.WrapHandler(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
}
