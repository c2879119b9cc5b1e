package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/workflows"
)

// Config is what a worker runs. Every field is needed unless it has a default.
type Config struct {
	Temporal client.Client
	Control  *activities.Control
	Turns    *activities.Turns
	Relay    Relay
	// ReconcileEvery is the interval of the reconciler's schedule. Default 30s.
	ReconcileEvery time.Duration
	// MaxTurns is how many turns run on this worker at once. Default 1000.
	MaxTurns int
	// StopTimeout is how long running activities may take to hand over when the
	// worker stops. Default 5s; turns hand over at once.
	StopTimeout time.Duration
	Logger      *slog.Logger
}

// Worker polls both queues. Use New.
type Worker struct {
	config  Config
	control worker.Worker
	turns   worker.Worker
	failed  chan error
	polling atomic.Bool
}

// New returns a worker that has not started.
func New(c Config) *Worker {
	if c.ReconcileEvery == 0 {
		c.ReconcileEvery = 30 * time.Second
	}
	if c.MaxTurns == 0 {
		c.MaxTurns = 1000
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 5 * time.Second
	}
	w := &Worker{config: c, failed: make(chan error, 2)} // one place for each of the two pollers
	fatal := func(err error) {
		select {
		case w.failed <- err:
		default:
		}
	}
	w.control = worker.New(c.Temporal, session.ControlQueue, worker.Options{
		DisableRegistrationAliasing:        true,
		WorkerStopTimeout:                  c.StopTimeout,
		MaxConcurrentActivityExecutionSize: 500,
		// A session whose worker was killed waits this long for it before any other takes over.
		StickyScheduleToStartTimeout: 2 * time.Second,
		OnFatalError:                 fatal,
	})
	w.control.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{Name: session.WorkflowName})
	w.control.RegisterWorkflowWithOptions(workflows.Reconcile, workflow.RegisterOptions{Name: workflows.ReconcileName})
	w.control.RegisterActivity(c.Control)

	w.turns = worker.New(c.Temporal, session.TurnsQueue, worker.Options{
		DisableWorkflowWorker:              true,
		DisableRegistrationAliasing:        true,
		WorkerStopTimeout:                  c.StopTimeout,
		MaxConcurrentActivityExecutionSize: c.MaxTurns,
		// Turns send their own heartbeats. The SDK's is used once, when Temporal has taken an
		// attempt back, and this bounds that call.
		MaxHeartbeatThrottleInterval: 2500 * time.Millisecond,
		OnFatalError:                 fatal,
	})
	w.turns.RegisterActivity(c.Turns)
	return w
}

// Run works until ctx ends, then hands over what is running and returns nil. An
// error means that it could not start or that Temporal has refused it for good.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.control.Start(); err != nil {
		return fmt.Errorf("start polling %s: %w", session.ControlQueue, err)
	}
	defer w.control.Stop()
	if err := w.turns.Start(); err != nil {
		return fmt.Errorf("start polling %s: %w", session.TurnsQueue, err)
	}
	defer w.turns.Stop()
	w.polling.Store(true)
	defer w.polling.Store(false)
	w.config.Logger.InfoContext(ctx, "worker polls", slog.String("control_queue", session.ControlQueue), slog.String("turns_queue", session.TurnsQueue))

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.config.Relay.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.schedule(ctx) })
	group.Go(func() error {
		select {
		case err := <-w.failed:
			return fmt.Errorf("worker: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Ready reports whether the worker polls.
func (w *Worker) Ready(context.Context) error {
	if !w.polling.Load() {
		return errors.New("the worker does not poll")
	}
	return nil
}
