package worker_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/temporaltest"
	"github.com/overwinter-dev/overwinter/worker"
	"github.com/overwinter-dev/overwinter/workflows"
)

// waitLimit bounds every wait of a test. Waits are short on an idle machine, but the tests of all
// packages share the machine.
const waitLimit = 2 * time.Minute

// engine is the address of the Temporal of this package's tests.
var engine string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := temporaltest.Start("..")
	if err != nil {
		logger.Error("no Temporal for the tests", slog.Any("error", err))
		return 1
	}
	engine = server.FrontendHostPort()
	code := m.Run()
	server.Client().Close()
	server.Stop() //nolint:errcheck // an error, since it is killed
	if err := leaktest.Find(); code == 0 && err != nil {
		logger.Error("goroutines leak", slog.Any("error", err))
		return 1
	}
	return code
}

func dial(t *testing.T) client.Client {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: engine, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// nothing has no unclaimed work, and no signal arrives.
type nothing struct{}

func (nothing) Unclaimed(context.Context, string, time.Duration, int) ([]backlog.Unclaimed, error) {
	return nil, nil
}

// signaler records every signal for a prompt.
type signaler struct {
	mu      sync.Mutex
	waiting []backlog.Unclaimed
	refuses string // the session whose signals it refuses; "*" for all
}

var errDeaf = errors.New("deaf")

func (b *signaler) SignalPrompt(_ context.Context, sessionID, promptID string, ordinal int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, backlog.Unclaimed{SessionID: sessionID, PromptID: promptID, Ordinal: ordinal})
	if b.refuses == "*" || b.refuses == sessionID {
		return errDeaf
	}
	return nil
}

func (b *signaler) signals() []backlog.Unclaimed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]backlog.Unclaimed(nil), b.waiting...)
}

// never is an interval of the reconciler at which it does not run within a test: a schedule fires at the multiples of its
// interval since 1970, and the reconciler needs a provider of sandboxes, which these tests do not have.
const never = 100_000 * time.Hour

// start runs a worker until the test ends or stop is called. stop returns the error of the worker.
func start(t *testing.T, c worker.Config) (w *worker.Worker, stop func() error) {
	t.Helper()
	if c.Control == nil {
		c.Control, c.Turns = activities.New(activities.Config{Logger: slog.New(slog.DiscardHandler)})
	}
	c.Logger = slog.New(slog.DiscardHandler)
	c.StopTimeout = time.Second
	if c.ReconcileEvery == 0 {
		c.ReconcileEvery = never
	}
	w = worker.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1) // buffered, since the test may not receive it
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { require.NoError(t, stop()) })
	return w, stop
}

func TestRelaySignalsUnclaimedPrompts(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	prompted := func(content string) (sessionID, promptID string) {
		s, _, err := db.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
		require.NoError(t, err)
		p, _, _, err := db.PromptSubmit(t.Context(), session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: s.ID, Content: content})
		require.NoError(t, err)
		return s.ID, p.ID
	}
	waiting, prompt := prompted("never signalled")
	claimed, other := prompted("being worked on")
	_, err := db.SessionOpen(t.Context(), claimed, "w1")
	require.NoError(t, err)
	require.NoError(t, db.GenerationReserve(t.Context(), claimed, 1, "im-1"))
	require.NoError(t, db.TransitionRecord(t.Context(), session.Transition{
		SessionID: claimed, No: 1, From: session.Initializing, To: session.Running, Event: session.EventReady,
	}))
	verdict, err := db.RunBegin(t.Context(), claimed, other, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.True(t, verdict.Granted)

	recorder := &signaler{}
	start(t, worker.Config{Temporal: dial(t), Relay: worker.Relay{Rows: db, Signaler: recorder, Every: 20 * time.Millisecond, Age: time.Millisecond}})
	require.Eventually(t, func() bool { return len(recorder.signals()) >= 3 }, waitLimit, 5*time.Millisecond, "again and again: it is harmless")
	for _, work := range recorder.signals() {
		require.Equal(t, backlog.Unclaimed{SessionID: waiting, PromptID: prompt, Ordinal: 1}, work)
	}
}

// TestFailedSignalDoesNotDelayOthers has more waiting sessions than one pass signals, and the
// signal of the first session always fails.
func TestFailedSignalDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	waiting := map[string]bool{}
	first := ""
	for range 5 {
		s, _, err := db.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{})
		require.NoError(t, err)
		waiting[s.ID] = true
		first = cmp.Or(first, s.ID)
	}
	recorder := &signaler{refuses: first}
	start(t, worker.Config{Temporal: dial(t), Relay: worker.Relay{Rows: db, Signaler: recorder, Every: 20 * time.Millisecond, Age: time.Millisecond, Batch: 2}})
	require.Eventually(t, func() bool {
		reached := map[string]bool{}
		for _, work := range recorder.signals() {
			reached[work.SessionID] = true
		}
		return len(reached) == len(waiting)
	}, waitLimit, 5*time.Millisecond, "every page is looked at")
	count := len(recorder.signals())
	require.Eventually(t, func() bool {
		for _, work := range recorder.signals()[count:] {
			if work.SessionID == first {
				return true
			}
		}
		return false
	}, waitLimit, 5*time.Millisecond, "and the one that fails again")
}

func TestWorkerIsReadyWhileItPolls(t *testing.T) {
	t.Parallel()
	w, stop := start(t, worker.Config{Temporal: dial(t), Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}}})
	require.Eventually(t, func() bool { return w.Ready(t.Context()) == nil }, waitLimit, 5*time.Millisecond)
	require.NoError(t, stop())
	require.Error(t, w.Ready(t.Context()))
	require.NoError(t, stop())
}

func TestWorkerMayBeStoppedBeforeStart(t *testing.T) {
	t.Parallel()
	for range 3 {
		_, stop := start(t, worker.Config{Temporal: dial(t), Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}}})
		require.NoError(t, stop())
	}
}

func TestScheduleUsesIntervalOfNewestWorker(t *testing.T) { //nolint:paralleltest // there is one schedule, which the others set too
	c := dial(t)
	for _, every := range []time.Duration{never + time.Minute, never + 2*time.Minute} {
		_, stop := start(t, worker.Config{
			Temporal: c, ReconcileEvery: every, Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}},
		})
		require.Eventually(t, func() bool {
			d, err := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleOf("")).Describe(t.Context())
			return err == nil && len(d.Schedule.Spec.Intervals) == 1 && d.Schedule.Spec.Intervals[0].Every == every
		}, waitLimit, 20*time.Millisecond)
		require.NoError(t, stop())
	}
	d, err := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleOf("")).Describe(t.Context())
	require.NoError(t, err)
	action, ok := d.Schedule.Action.(*client.ScheduleWorkflowAction)
	require.True(t, ok)
	require.Equal(t, workflows.ReconcileName, action.Workflow)
	require.Equal(t, contract.QueuesOf("").Control, action.TaskQueue)
}
