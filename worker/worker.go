package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/workflows"
)

// Config is the configuration of a worker. Every field is required unless it has a default.
type Config struct {
	Temporal client.Client
	Control  *activities.Control
	Turns    *activities.Turns
	Relay    Relay
	// Installation is the id in the names of the task queues and of the schedule.
	Installation string
	// Legacy is set while workflows may be open on the queues of QueuesOf(""). The worker polls
	// these too, until none is open.
	Legacy Legacy
	// LegacyEvery is the interval at which the worker checks for open workflows on these queues.
	// Default 1m.
	LegacyEvery time.Duration
	// Commands repeats the signals of pending commands. Without rows it does nothing.
	Commands CommandRelay
	Outages  Outages
	// Purges erases sessions. Without a Purger it does nothing.
	Purges Purges
	// Archives makes archives of bundles. Without an Archiver it does nothing.
	Archives Archives
	// Statistics analyzes tables that have grown. Without tables it does nothing.
	Statistics Statistics
	// Lifecycle orders the lifecycle events of all sessions. Without a store it does nothing.
	Lifecycle Lifecycle
	// Webhooks delivers lifecycle events. Without a store it does nothing.
	Webhooks Webhooks
	// Drain hibernates all sessions before the worker stops. Without rows, running turns are handed
	// over.
	Drain Drain
	// ReconcileEvery is the interval of the reconciler's schedule. Default 30s.
	ReconcileEvery time.Duration
	// ForgetEvery is the interval at which the workflows of completed reconciliations are deleted.
	// Default 1m.
	ForgetEvery time.Duration
	// Namespace is the Temporal namespace. Default "default".
	Namespace string
	// Deployment pins the workflows of sessions to builds of the worker. Default: they are not
	// pinned.
	Deployment Deployment
	// MaxTurns is how many turns run on this worker at once. Default 1000.
	MaxTurns int
	// CachedWorkflows is how many workflows this process keeps in memory. The SDK has one cache for
	// all workers of a process. Other workflows are replayed from their history when they have a
	// task. Default: the SDK's 10,000.
	CachedWorkflows int
	// StopTimeout is how long running activities may take to hand over when the
	// worker stops. Default 5s; turns hand over at once.
	StopTimeout time.Duration
	// Mask masks secrets in the errors of activities, which Temporal keeps. Default: nothing is masked.
	Mask   func(string) string
	Logger *slog.Logger
}

// Worker polls both queues. Use New.
type Worker struct {
	config  Config
	queues  contract.Queues
	pollers []worker.Worker
	failed  chan error
	polling atomic.Bool
}

// New returns a worker that has not started.
func New(c Config) *Worker {
	if c.ReconcileEvery == 0 {
		c.ReconcileEvery = 30 * time.Second
	}
	if c.ForgetEvery == 0 {
		c.ForgetEvery = time.Minute
	}
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.LegacyEvery == 0 {
		c.LegacyEvery = time.Minute
	}
	c.Deployment = c.Deployment.withDefaults(c.Installation)
	if c.MaxTurns == 0 {
		c.MaxTurns = 1000
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 5 * time.Second
	}
	if c.CachedWorkflows > 0 {
		worker.SetStickyWorkflowCacheSize(c.CachedWorkflows)
	}
	w := &Worker{config: c, queues: contract.QueuesOf(c.Installation), failed: make(chan error, 1)} // the first call counts
	w.pollers = w.newPollers(w.queues, c.Deployment.options())
	return w
}

// newPollers returns the pollers of an installation's queues.
func (w *Worker) newPollers(q contract.Queues, build worker.DeploymentOptions) []worker.Worker {
	fatal := func(err error) {
		select {
		case w.failed <- err:
		default:
		}
	}
	interceptors := append(w.masking(), &activities.Interceptor{}) // the first is the outer one
	control := worker.New(w.config.Temporal, q.Control, worker.Options{
		DisableRegistrationAliasing:        true,
		WorkerStopTimeout:                  w.config.StopTimeout,
		MaxConcurrentActivityExecutionSize: 500,
		// A session whose worker was killed waits this long before another worker takes over.
		StickyScheduleToStartTimeout: 2 * time.Second,
		OnFatalError:                 fatal,
		Interceptors:                 interceptors,
		DeploymentOptions:            build,
	})
	control.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{
		Name: contract.WorkflowName, VersioningBehavior: workflow.VersioningBehaviorPinned, // where workers have builds
	})
	control.RegisterWorkflowWithOptions(workflows.Reconcile, workflow.RegisterOptions{Name: workflows.ReconcileName})
	control.RegisterActivity(w.config.Control)
	if w.config.Webhooks.Attempts != nil {
		control.RegisterWorkflowWithOptions(workflows.DeliverWebhook, workflow.RegisterOptions{Name: workflows.DeliverWebhookName})
		control.RegisterActivity(w.config.Webhooks.Attempts)
	}

	turns := worker.New(w.config.Temporal, q.Turns, worker.Options{
		DisableWorkflowWorker:              true,
		DisableRegistrationAliasing:        true,
		WorkerStopTimeout:                  w.config.StopTimeout,
		MaxConcurrentActivityExecutionSize: w.config.MaxTurns,
		// Turns send their own heartbeats. The SDK's is only used when Temporal has revoked an
		// attempt, and this bounds that call.
		MaxHeartbeatThrottleInterval: 2500 * time.Millisecond,
		OnFatalError:                 fatal,
		Interceptors:                 interceptors,
		DeploymentOptions:            build,
	})
	turns.RegisterActivity(w.config.Turns)
	return []worker.Worker{control, turns}
}

// start makes pollers poll until stop is called.
func start(pollers []worker.Worker) (stop func(), err error) {
	var started []worker.Worker
	stop = func() {
		for _, p := range slices.Backward(started) {
			p.Stop()
		}
	}
	for _, p := range pollers {
		if err := p.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("start polling: %w", err)
		}
		started = append(started, p)
	}
	return stop, nil
}

// Run runs the worker until ctx ends, then hibernates the sessions if a Drain is configured, hands
// over running turns and returns nil. An error means that the worker could not start or that
// Temporal has refused it permanently.
func (w *Worker) Run(ctx context.Context) error {
	stop, err := start(w.pollers)
	if err != nil {
		return err
	}
	defer stop()
	w.polling.Store(true)
	defer w.polling.Store(false)
	w.config.Logger.InfoContext(ctx, "worker polls", slog.String("control_queue", w.queues.Control), slog.String("turns_queue", w.queues.Turns))

	stopping := context.WithoutCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.config.Relay.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Commands.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Outages.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Purges.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Archives.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Statistics.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.config.Lifecycle.run(ctx, w.config.Logger) })
	group.Go(func() error { return w.webhooks(ctx) })
	group.Go(func() error { return w.schedule(ctx) })
	group.Go(func() error { return w.forgetLooks(ctx) })
	group.Go(func() error { return w.drainLegacy(ctx) })
	group.Go(func() error { return w.moveStranded(ctx) })
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
	w.config.Drain.run(stopping, w.config.Logger)
	return nil
}

// Ready reports whether the worker polls.
func (w *Worker) Ready(context.Context) error {
	if !w.polling.Load() {
		return failure.Errorf(failure.Unavailable, "the worker does not poll")
	}
	return nil
}
