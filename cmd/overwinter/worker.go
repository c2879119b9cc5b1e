package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-retry"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/metrics"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
	"github.com/overwinter-dev/overwinter/internal/turn"
	"github.com/overwinter-dev/overwinter/internal/webhook"
	"github.com/overwinter-dev/overwinter/worker"
)

// workerCmd runs workflows and activities.
type workerCmd struct {
	databaseFlags
	temporalFlags
	secretFlags
	modalFlags
	webhookFlags

	RunnerBinary     string         `env:"OVERWINTER_RUNNER_BINARY" placeholder:"FILE" help:"Program that runs in sandboxes. Default: overwinter-runner in this program's directory."`
	SandboxTimeout   time.Duration  `env:"OVERWINTER_SANDBOX_TIMEOUT" default:"24h" placeholder:"DURATION" help:"Maximum lifetime of a sandbox, from 10s to 24h. Its session moves to a new sandbox before that. Default ${default}."`
	ReconcileEvery   time.Duration  `env:"OVERWINTER_RECONCILE_EVERY" default:"30s" placeholder:"DURATION" help:"How often to compare the provider's sandboxes with the sessions. Default ${default}."`
	RetainTerminated time.Duration  `env:"OVERWINTER_RETAIN_TERMINATED" placeholder:"DURATION" help:"Purge sessions this long after they were terminated, at least 1m, such as 720h. Default: never."`
	CompactAfter     time.Duration  `env:"OVERWINTER_COMPACT_AFTER" placeholder:"DURATION" help:"Delete text deltas older than this from the log if their block is complete; at least 1m, such as 24h. Default: never."`
	RetainEvents     time.Duration  `env:"OVERWINTER_RETAIN_EVENTS" placeholder:"DURATION" help:"Delete events older than this, in hibernated and terminated sessions; at least 1m, such as 2160h. Default: never."`
	MaxTurns         int            `env:"OVERWINTER_MAX_TURNS" default:"1000" placeholder:"N" help:"Maximum number of concurrent turns on this worker. Default ${default}."`
	CachedWorkflows  int            `env:"OVERWINTER_CACHED_WORKFLOWS" default:"4000" placeholder:"N" help:"Maximum number of workflows in memory, 45 KB each; there is one for each session that is awake or has slept for less than a day. The history of another one is read and replayed when its session has to act. At least 10. Default ${default}."`
	Checkpoint       string         `env:"OVERWINTER_CHECKPOINT" default:"hibernate" placeholder:"WHEN" help:"Default of options.checkpoint, when awake sessions save a bundle: hibernate (not at all), turn (after each turn), or a duration from 1s to 168h. Default ${default}."`
	KeepBundles      int            `env:"OVERWINTER_KEEP_BUNDLES" default:"10" placeholder:"N" help:"Number of newest bundles of a session to keep with their snapshots, from 1 to 1000. Default ${default}."`
	ParkAfter        time.Duration  `env:"OVERWINTER_PARK_AFTER" default:"3m" placeholder:"DURATION" help:"How long a turn may wait only for an answer before its session hibernates; the answer wakes it. From 1s to 24h; 0 for never, and questions then expire after 5m by default. Default ${default}."`
	Attend           time.Duration  `env:"OVERWINTER_ATTEND" default:"20s" placeholder:"DURATION" help:"How long a worker stays with a session after a turn, to run its next prompt without a round trip through Temporal; at most 1m; 0 disables this, and the start of a turn together with the restore of its sandbox. Default ${default}."`
	AgentTools       bool           `env:"OVERWINTER_AGENT_TOOLS" default:"true" negatable:"" help:"Offer agents the tools of overwinter, such as set_title, as a server of the Model Context Protocol. A profile can switch them off too. Default ${default}."`
	DrainTimeout     *time.Duration `env:"OVERWINTER_DRAIN_TIMEOUT" placeholder:"DURATION" help:"On a stop, hibernate all sessions of the installation, and interrupt turns that run for longer than this; at most 1h. For installations whose sandboxes end with the worker, such as those of a local Modal on the same machine. Default: hand running turns over to other workers."`
	Versioning       bool           `name:"versioning" env:"OVERWINTER_WORKER_VERSIONING" negatable:"" help:"Pin the workflow of an awake session to the build of its worker, as a Temporal worker deployment. Requires that workers of the previous build run until they are drained, and that an operator or a controller makes builds current: see docs/operations.md. Default: any worker takes any session."`
	DeploymentName   string         `env:"TEMPORAL_DEPLOYMENT_NAME" placeholder:"NAME" help:"Name of that worker deployment. Default: overwinter- and the id of the installation."`
	BuildID          string         `name:"build-id" env:"TEMPORAL_WORKER_BUILD_ID" placeholder:"BUILD" help:"Build of this worker in that deployment. Default: what overwinter version prints, such as 0.2.0+0123456789ab."`
	StrandedAfter    time.Duration  `env:"OVERWINTER_STRANDED_AFTER" default:"3m" placeholder:"DURATION" help:"How long a build may have no polling worker before its sessions restart on the current build, from 90s to 24h. Default ${default}."`
	PublicURL        string         `name:"public-url" env:"OVERWINTER_PUBLIC_URL" placeholder:"URL" help:"Public URL of the API, for links in Temporal's UI. Default: no links."`
	HealthAddress    string         `env:"OVERWINTER_WORKER_HEALTH_ADDRESS" placeholder:"ADDR" help:"Address that serves /healthz, /readyz and /metrics. Default: none."`
}

// webhookFlags configure the permitted addresses of webhooks.
type webhookFlags struct {
	PrivateWebhooks bool `name:"webhook-private-addresses" env:"OVERWINTER_WEBHOOK_PRIVATE_ADDRESSES" help:"Deliver to webhooks at private addresses, such as this machine and a private network, and over plain HTTP. For development, or if everyone who may create webhooks may reach that network."`
}

// modalFlags configure the provider of sandboxes.
type modalFlags struct {
	ModalServerURL   string       `env:"MODAL_SERVER_URL" placeholder:"URL" help:"URL of Modal's API. Default: Modal's own."`
	ModalTokenID     string       `env:"MODAL_TOKEN_ID" required:"" placeholder:"ID" help:"ID of the token for Modal, or for the local Modal."`
	ModalTokenSecret secret.Value `env:"MODAL_TOKEN_SECRET" required:"" placeholder:"SECRET" help:"Secret of that token."`
	ModalEnvironment string       `env:"MODAL_ENVIRONMENT" placeholder:"NAME" help:"Modal environment. Default: the account's."`
	ModalApp         string       `env:"OVERWINTER_MODAL_APP" default:"overwinter" placeholder:"NAME" help:"Modal app that sandboxes belong to. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *workerCmd) Validate() error {
	switch {
	case c.SandboxTimeout < minSandboxTimeout || c.SandboxTimeout > sandbox.MaxTimeout:
		return fmt.Errorf("--sandbox-timeout is %s; it must be from %s to %s", c.SandboxTimeout, minSandboxTimeout, sandbox.MaxTimeout)
	case c.ReconcileEvery < time.Second:
		return fmt.Errorf("--reconcile-every is %s; it must be at least 1s", c.ReconcileEvery)
	case c.RetainTerminated < 0 || c.RetainTerminated > 0 && c.RetainTerminated < time.Minute:
		return fmt.Errorf("--retain-terminated is %s; it must be 0 or at least 1m", c.RetainTerminated)
	case c.CompactAfter < 0 || c.CompactAfter > 0 && c.CompactAfter < time.Minute:
		return fmt.Errorf("--compact-after is %s; it must be 0 or at least 1m", c.CompactAfter)
	case c.RetainEvents < 0 || c.RetainEvents > 0 && c.RetainEvents < time.Minute:
		return fmt.Errorf("--retain-events is %s; it must be 0 or at least 1m", c.RetainEvents)
	case c.ParkAfter != 0 && (c.ParkAfter < session.MinParkAfter || c.ParkAfter > session.MaxParkAfter):
		return fmt.Errorf("--park-after is %s; it must be 0s or from 1s to 24h", c.ParkAfter)
	case c.Attend < 0 || c.Attend > time.Minute:
		return fmt.Errorf("--attend is %s; it must be from 0s to 1m", c.Attend)
	case c.DrainTimeout != nil && (*c.DrainTimeout < 0 || *c.DrainTimeout > maxDrainTimeout):
		return fmt.Errorf("--drain-timeout is %s; it must be from 0s to %s", *c.DrainTimeout, maxDrainTimeout)
	case c.Versioning && c.DrainTimeout != nil:
		return errors.New("--drain-timeout hibernates all sessions of the installation, including those of other builds; it cannot be combined with --versioning")
	case c.StrandedAfter < worker.MinStrandedAfter || c.StrandedAfter > maxStrandedAfter:
		return fmt.Errorf("--stranded-after is %s; it must be from %s to %s", c.StrandedAfter, worker.MinStrandedAfter, maxStrandedAfter)
	case c.KeepBundles < 1 || c.KeepBundles > checkpoint.MaxKeep:
		return fmt.Errorf("--keep-bundles is %d; it must be from 1 to %d", c.KeepBundles, checkpoint.MaxKeep)
	case c.MaxTurns < 1:
		return fmt.Errorf("--max-turns is %d; it must be at least 1", c.MaxTurns)
	case c.CachedWorkflows < minCachedWorkflows:
		return fmt.Errorf("--cached-workflows is %d; it must be at least %d", c.CachedWorkflows, minCachedWorkflows)
	}
	if _, err := checkpoint.Parse(c.Checkpoint); err != nil {
		return fmt.Errorf("--checkpoint is %q; it %w", c.Checkpoint, err)
	}
	return nil
}

// minSandboxTimeout leaves a session a few seconds in each sandbox. Lifetimes below a minute are
// only for testing moves.
const minSandboxTimeout = 10 * time.Second

// minCachedWorkflows allows workflows that run concurrently to stay in memory.
const minCachedWorkflows = 10

// maxDrainTimeout bounds how long a stop may wait for running turns.
const maxDrainTimeout = time.Hour

// maxStrandedAfter bounds how long the sessions of a build may wait for its workers.
const maxStrandedAfter = 24 * time.Hour

// deployment returns the deployment that the flags describe.
func (c *workerCmd) deployment() worker.Deployment {
	d := worker.Deployment{Name: c.DeploymentName, StrandedAfter: c.StrandedAfter}
	if c.Versioning {
		d.Build = cmp.Or(c.BuildID, buildVersion())
	}
	return d
}

// drain returns the drain that the flag describes.
func (c *workerCmd) drain(db *postgres.DB, signaler *sessionclient.Client, shutdown *activities.Shutdown) worker.Drain {
	if c.DrainTimeout == nil {
		return worker.Drain{}
	}
	return worker.Drain{Rows: db, Signaler: signaler, Shutdown: shutdown, Timeout: *c.DrainTimeout}
}

// Run runs the worker until ctx ends.
func (c *workerCmd) Run(ctx context.Context, logger *slog.Logger) error {
	limitMemory()
	defer runtime.KeepAlive(reserveHeap())
	keyring, err := c.keyring()
	if err != nil {
		return err
	}
	binary, err := runnerBinary(c.RunnerBinary)
	if err != nil {
		return err
	}
	db, err := c.openSealed(ctx, logger, keyring)
	if err != nil {
		return err
	}
	defer db.Close()
	_, stopTracing, err := startTracing(ctx, "worker")
	if err != nil {
		return err
	}
	defer stopTracing()
	registry, err := newRegistry()
	if err != nil {
		return err
	}
	if err := registry.Register(newGauges(db)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	measured := metrics.NewWorker(registry)
	temporal, err := c.dial(logger, registry)
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer temporal.Close()

	var polls polling
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		installation, err := awaitInstallation(ctx, db, logger)
		if err != nil {
			return err
		}
		// ParseCheckpoint has accepted it: see Validate.
		checkpoint, err := checkpoint.Parse(c.Checkpoint)
		if err != nil {
			return err
		}
		if err := db.BundlesConfigure(ctx, c.KeepBundles, checkpoint); err != nil {
			return err
		}
		return c.run(ctx, db, temporal, installation, keyring, binary, &polls, measured, logger)
	})
	if c.HealthAddress != "" {
		signaler := sessionclient.New(temporal, c.TemporalNamespace, installationQueue(db)) // only for Ping
		group.Go(func() error {
			return serveHealth(ctx, c.HealthAddress, map[string]func(context.Context) error{
				"postgres": db.Ready, "temporal": signaler.Ping, "worker": polls.ready,
			}, registry, logger)
		})
	}
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// polling holds the worker once it exists.
type polling struct{ worker atomic.Pointer[worker.Worker] }

func (p *polling) ready(ctx context.Context) error {
	if w := p.worker.Load(); w != nil {
		return w.Ready(ctx)
	}
	return failure.Errorf(failure.Unavailable, "the worker waits for the database")
}

// run runs the worker of an installation until ctx ends.
func (c *workerCmd) run(
	ctx context.Context, db *postgres.DB, temporal client.Client, installation string, keyring *secret.Keyring, binary string, polls *polling,
	measured *metrics.Worker, logger *slog.Logger,
) error {
	driver, err := modalsandbox.New(modalsandbox.Config{
		ServerURL: c.ModalServerURL, TokenID: c.ModalTokenID, TokenSecret: c.ModalTokenSecret,
		Environment: c.ModalEnvironment, AppName: c.ModalApp, Logger: logger,
	})
	if err != nil {
		return fmt.Errorf("connect to Modal: %w", err)
	}
	defer driver.Close() // sandboxes keep running
	provider := sandbox.NewProvider(driver, sandbox.Options{
		Installation: installation, Logger: logger, PollInterval: 2 * time.Second,
	})
	queue := contract.QueuesOf(installation).Control
	signaler := sessionclient.New(temporal, c.TemporalNamespace, sessionclient.At(queue))

	appender := eventlog.NewAppender(db, eventlog.AppenderOptions{
		Logger: logger, MaxCommits: max(1, db.MaxConns()/4), MaxLockWaits: max(1, db.MaxConns()/8), Committed: measured.EventsCommitted,
	})
	appender.Start()
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendAtStop)
		defer cancel()
		appender.Stop(last)
	}()

	changes := eventlog.NewFollower(postgres.Outside{DB: db}, eventlog.FollowerOptions{Logger: logger})
	changes.Start()
	defer changes.Stop()

	runner, err := activities.FindRunner(binary)
	if err != nil {
		return err
	}
	secrets, logger := maskedSecrets(db, keyring, logger)
	if err := secrets.load(ctx); err != nil { // before an error can contain the output of an agent
		return err
	}
	links := turn.NewLinks()
	defer links.Close()
	shutdown := new(activities.Shutdown)
	control, turns := activities.New(activities.Config{
		Links: links, Store: db, Log: appender, Agents: catalog.Agents(), Sandbox: provider,
		Image: newImages(provider, db, binary, measured, logger), Signaler: signaler, Changes: changes, Secrets: secrets, Masks: secrets,
		Runner: runner, Queue: queue, Keys: keyring, SandboxTimeout: c.SandboxTimeout, Attend: c.Attend, ParkAfter: c.ParkAfter, Shutdown: shutdown, Versioned: c.Versioning, PublicURL: c.PublicURL, MaxTurns: c.MaxTurns,
		NoTools: !c.AgentTools,
		Metrics: measured, Logger: logger,
	})
	// Without it, the SDK reads the whole program to identify it by a checksum, which takes a tenth of a second.
	sdkworker.SetBinaryChecksum(buildVersion())
	w := worker.New(worker.Config{
		Temporal: temporal, Namespace: c.TemporalNamespace, Control: control, Turns: turns, Deployment: c.deployment(),
		Relay: worker.Relay{Rows: db, Signaler: signaler, Metrics: measured}, Installation: installation, Legacy: db,
		Commands: worker.CommandRelay{Rows: db, Signaler: signaler, Metrics: measured},
		Outages:  worker.Outages{Store: db, Database: db.Ping, Temporal: signaler.Ping},
		Purges: worker.Purges{Purger: activities.NewPurger(control, db, signaler, activities.Retention{
			Terminated: c.RetainTerminated, Events: c.RetainEvents, Deltas: c.CompactAfter,
		})},
		Archives:   worker.Archives{Archiver: activities.NewArchiver(control, db)},
		Statistics: worker.Statistics{Tables: db},
		Lifecycle:  worker.Lifecycle{Store: db},
		Webhooks: worker.Webhooks{Store: db, Attempts: &activities.Webhooks{
			Store: db, Sender: webhook.NewSender(c.PrivateWebhooks, "overwinter/"+buildVersion()), Opener: keyring, Logger: logger,
		}},
		Drain: c.drain(db, signaler, shutdown), Mask: secrets.text, ReconcileEvery: c.ReconcileEvery, MaxTurns: c.MaxTurns, CachedWorkflows: c.CachedWorkflows, Logger: logger,
	})
	polls.worker.Store(w)
	following, stopFollowing := context.WithCancel(context.WithoutCancel(ctx)) // sessions may work until the worker has stopped
	defer stopFollowing()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stopFollowing()
		return c.work(ctx, w, signaler, logger)
	})
	group.Go(func() error { return secrets.follow(following) })
	group.Go(func() error { return describeSandboxes(ctx, db, provider, logger) })
	return group.Wait()
}

// appendAtStop limits how long a stopping worker tries to commit waiting events. Agents continue,
// and uncommitted output is read again from the journals in their sandboxes.
const appendAtStop = 5 * time.Second

// work runs the worker after Temporal has answered.
func (c *workerCmd) work(ctx context.Context, w *worker.Worker, signaler *sessionclient.Client, logger *slog.Logger) error {
	err := backoff.Retry(ctx, startupPauses(), func(ctx context.Context) error {
		err := signaler.Ping(ctx)
		if err != nil {
			logger.WarnContext(ctx, "waiting for Temporal, which does not respond", slog.Any("error", errors.Unwrap(err)))
		}
		return retry.RetryableError(err)
	})
	if err != nil {
		return nil //nolint:nilerr // the worker was stopped before Temporal answered
	}
	return w.Run(ctx)
}

// describeSandboxes records the driver and isolation of this worker's sandboxes, once their
// provider responds, for the api to show.
func describeSandboxes(ctx context.Context, db *postgres.DB, p *sandbox.Provider, logger *slog.Logger) error {
	backoff.Retry(ctx, startupPauses(), func(ctx context.Context) (err error) { //nolint:errcheck // it fails only when the worker is stopped
		for _, err = range p.List(ctx) {
			break // the first page shows that the provider responds
		}
		if err == nil {
			sandboxes := p.Describe()
			err = db.SandboxesDescribe(ctx, sandboxes.Driver, sandboxes.Isolation)
		}
		if err != nil {
			logger.WarnContext(ctx, "could not query the sandbox provider", slog.Any("error", err))
		}
		return retry.RetryableError(err)
	})
	return nil
}
