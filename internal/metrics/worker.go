package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Buckets in seconds.
var (
	turnBuckets   = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200}
	stepBuckets   = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}
	commitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15}
)

// Worker has the metrics of a worker. It is safe for concurrent use.
type Worker struct {
	turns        *prometheus.CounterVec
	turnSeconds  *prometheus.HistogramVec
	attempts     *prometheus.CounterVec
	running      prometheus.Gauge
	queueWait    *prometheus.HistogramVec
	tokens       *prometheus.CounterVec
	retries      *prometheus.CounterVec
	asked        *prometheus.CounterVec
	transitions  *prometheus.CounterVec
	start        prometheus.Histogram
	wake         *prometheus.HistogramVec
	hibernate    prometheus.Histogram
	create       *prometheus.HistogramVec
	snapshot     *prometheus.HistogramVec
	snapshotSize prometheus.Histogram
	imageBuild   *prometheus.HistogramVec
	reconcile    *prometheus.HistogramVec
	reconciled   prometheus.Gauge
	relay        *prometheus.CounterVec
	refused      *prometheus.CounterVec
	opened       prometheus.Counter
	appends      prometheus.Histogram
	commits      *prometheus.HistogramVec
}

// NewWorker returns the metrics of a worker, registered with registry, or unregistered if it is
// nil.
func NewWorker(registry prometheus.Registerer) *Worker {
	m := &Worker{
		turns:       counters("turns_total", "Turns that have ended, by agent and outcome.", "agent", "outcome"),
		turnSeconds: histograms("turn_seconds", "Time from the claim of a prompt to the end of its turn.", turnBuckets, "agent"),
		attempts:    counters("turn_attempts_total", "Attempts at turns that have ended on this worker, by result: ended, handed_over, cancelled, stalled, failed.", "result"),
		running:     prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "turns_running", Help: "Attempts at turns in progress on this worker, without attendants between turns."}),
		queueWait:   histograms("queue_wait_seconds", "Time from the acceptance of a prompt to its claim.", turnBuckets, "agent"),
		tokens:      counters("tokens_total", "Tokens of turns that have ended, as agents report them; kind is input or output.", "agent", "kind"),
		retries:     counters("model_retries_total", "Failed model requests that agents retried, as they report them.", "agent"),
		asked:       counters("questions_asked_total", "Questions that people were asked, by kind.", "kind"),
		transitions: counters("session_transitions_total", "Transitions of sessions, by the status before and after.", "from", "to"),
		start:       histogram("start_seconds", "Time from the start of a new session's workflow to a sandbox that is ready; not of lazy sessions.", stepBuckets),
		wake:        histograms("wake_seconds", "Time from a wake until the session runs, by receipt: full, partial, fresh or unverified.", stepBuckets, "receipt"),
		hibernate:   histogram("hibernate_seconds", "Time from a hibernation until the sandbox is saved and terminated.", stepBuckets),
		create:      histograms("sandbox_create_seconds", "Time of the provider to create a sandbox, by result: ok or error.", stepBuckets, "result"),
		snapshot:    histograms("snapshot_seconds", "Time of the provider to make a snapshot, by result: ok or error.", stepBuckets, "result"),
		snapshotSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "snapshot_bytes", Help: "Size of the workspace's files in a snapshot. Providers do not report the size of images.",
			Buckets: prometheus.ExponentialBuckets(1<<12, 8, 9),
		}),
		imageBuild: histograms("image_build_seconds", "Time to build the image of an agent, by result: ok or error.", stepBuckets, "result"),
		reconcile:  histograms("reconcile_seconds", "Time of a reconciliation on this worker, by result: ok or error.", stepBuckets, "result"),
		reconciled: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "reconcile_last_success_timestamp_seconds", Help: "When a reconciliation last succeeded on this worker, as Unix time; 0 before the first.",
		}),
		refused: counters("breaker_refusals_total", "Starts of sandboxes that waited because others keep failing, by agent.", "agent"),
		opened:  prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "breaker_opened_total", Help: "Circuit breakers of starts that this worker has opened."}),
		relay:   counters("relay_signals_total", "Signals that the relay re-sent, by kind (prompt, command) and result (ok, error).", "kind", "result"),
		appends: histogram("event_append_seconds", "Time of an append to the event log, with the wait for its commit.", commitBuckets),
		commits: histograms("event_commit_seconds", "Time of one commit of events, by result: ok or error.", commitBuckets, "result"),
	}
	if registry != nil {
		registry.MustRegister(m.turns, m.turnSeconds, m.attempts, m.running, m.queueWait, m.tokens, m.retries, m.asked, m.transitions, m.start,
			m.wake, m.hibernate, m.create, m.snapshot, m.snapshotSize, m.imageBuild, m.reconcile, m.reconciled, m.refused, m.opened, m.relay, m.appends, m.commits)
	}
	return m
}

// prefix is the prefix of all names.
const prefix = "overwinter_"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
}

// result returns the value of the label result.
func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Turn is an ended turn.
type Turn struct {
	Agent, Outcome            string
	Took                      time.Duration
	QueueWait                 time.Duration // negative if unknown
	InputTokens, OutputTokens int64
}

// TurnEnded counts a turn.
func (m *Worker) TurnEnded(t Turn) {
	m.turns.WithLabelValues(t.Agent, t.Outcome).Inc()
	m.turnSeconds.WithLabelValues(t.Agent).Observe(t.Took.Seconds())
	if t.QueueWait >= 0 {
		m.queueWait.WithLabelValues(t.Agent).Observe(t.QueueWait.Seconds())
	}
	m.tokens.WithLabelValues(t.Agent, "input").Add(float64(max(0, t.InputTokens)))
	m.tokens.WithLabelValues(t.Agent, "output").Add(float64(max(0, t.OutputTokens)))
}

// AttemptBegun counts an attempt at a turn as running until end is called with its result.
func (m *Worker) AttemptBegun() (end func(result string)) {
	m.running.Inc()
	return func(result string) {
		m.running.Dec()
		m.attempts.WithLabelValues(result).Inc()
	}
}

// ModelRetried counts a retried request to a model.
func (m *Worker) ModelRetried(agent string) { m.retries.WithLabelValues(agent).Inc() }

// QuestionAsked counts a question to people.
func (m *Worker) QuestionAsked(kind string) { m.asked.WithLabelValues(kind).Inc() }

// Transition counts a transition of a session.
func (m *Worker) Transition(from, to string) { m.transitions.WithLabelValues(from, to).Inc() }

// Started measures the start of a new session.
func (m *Worker) Started(took time.Duration) { m.start.Observe(took.Seconds()) }

// Woken measures a wake.
func (m *Worker) Woken(receipt string, took time.Duration) {
	m.wake.WithLabelValues(receipt).Observe(took.Seconds())
}

// Hibernated measures a hibernation.
func (m *Worker) Hibernated(took time.Duration) { m.hibernate.Observe(took.Seconds()) }

// SandboxCreated measures a create of the provider.
func (m *Worker) SandboxCreated(took time.Duration, err error) {
	m.create.WithLabelValues(result(err)).Observe(took.Seconds())
}

// BreakerRefused counts a start that a circuit breaker delays.
func (m *Worker) BreakerRefused(agent string) { m.refused.WithLabelValues(agent).Inc() }

// BreakerOpened counts an opened circuit breaker of starts.
func (m *Worker) BreakerOpened() { m.opened.Inc() }

// SnapshotMade measures a snapshot of the provider.
func (m *Worker) SnapshotMade(took time.Duration, err error) {
	m.snapshot.WithLabelValues(result(err)).Observe(took.Seconds())
}

// SnapshotSized measures the size of the workspace in a snapshot.
func (m *Worker) SnapshotSized(bytes int64) { m.snapshotSize.Observe(float64(bytes)) }

// ImageBuilt measures the build of an agent's image.
func (m *Worker) ImageBuilt(took time.Duration, err error) {
	m.imageBuild.WithLabelValues(result(err)).Observe(took.Seconds())
}

// Reconciled measures a reconciliation.
func (m *Worker) Reconciled(took time.Duration, err error) {
	m.reconcile.WithLabelValues(result(err)).Observe(took.Seconds())
	if err == nil {
		m.reconciled.SetToCurrentTime()
	}
}

// Relayed counts a signal that the relay has re-sent; kind is prompt or command.
func (m *Worker) Relayed(kind string, err error) { m.relay.WithLabelValues(kind, result(err)).Inc() }

// EventsAppended measures an append to the event log.
func (m *Worker) EventsAppended(took time.Duration) { m.appends.Observe(took.Seconds()) }

// EventsCommitted measures a commit of events.
func (m *Worker) EventsCommitted(took time.Duration, err error) {
	m.commits.WithLabelValues(result(err)).Observe(took.Seconds())
}
