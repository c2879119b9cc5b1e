package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/peeruser"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/rawio"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
)

// apiCmd serves the HTTP API.
type apiCmd struct {
	databaseFlags
	temporalFlags

	Address string       `env:"OVERWINTER_API_ADDRESS" default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address to listen on. Default ${default}."`
	Key     secret.Value `name:"api-key" env:"OVERWINTER_API_KEY" placeholder:"KEY" help:"API key that clients send as a bearer token, at least 20 characters. Required unless --allow-loopback-without-key is set."`

	SecretKey secret.Value `env:"OVERWINTER_SECRET_KEY" placeholder:"BASE64" help:"Key of this installation, the same as the workers': 32 bytes in base64. Without it, secrets cannot be stored and transcripts cannot be read; once secrets exist, files, diffs and questions cannot be read either (503)."`
	previousKeys
	corsFlags
	webhookFlags

	CollectWindow time.Duration `env:"OVERWINTER_COLLECT_WINDOW" default:"3s" placeholder:"DURATION" help:"How long a prompt in collect mode waits for further prompts to join it, counted from the newest, from 100ms to 1m. Default ${default}."`

	AllowLoopbackWithoutKey bool   `env:"OVERWINTER_ALLOW_LOOPBACK_WITHOUT_KEY" help:"Serve programs of this user and root without a key, on a loopback address only. For development."`
	AllowUsers              string `name:"allow-users" env:"OVERWINTER_ALLOW_USERS" placeholder:"NAMES" help:"Other users of this machine that --allow-loopback-without-key serves, by name or ID, such as alice,1001; all for every user. Default: none."`
}

// corsFlags name the origins of pages that may use the API.
type corsFlags struct {
	CORSOrigins []string `name:"cors-origin" env:"OVERWINTER_CORS_ORIGINS" placeholder:"ORIGIN" help:"Origins of web pages that may call the API from a browser, such as https://app.example.com,http://localhost:5173; * for all, which requires an API key. Default: none."`
}

// Validate checks what kong cannot.
func (c *apiCmd) Validate() error {
	if err := api.CheckOrigins(c.CORSOrigins, !c.Key.Empty()); err != nil {
		return fmt.Errorf("--cors-origin (OVERWINTER_CORS_ORIGINS): %w", err)
	}
	if c.CollectWindow < session.MinCollectWindow || c.CollectWindow > session.MaxCollectWindow {
		return fmt.Errorf("--collect-window is %s; it must be from %s to %s", c.CollectWindow, session.MinCollectWindow, session.MaxCollectWindow)
	}
	if !c.Key.Empty() {
		if len(c.Key.Reveal()) < api.MinKeyLength {
			return fmt.Errorf("--api-key (OVERWINTER_API_KEY) has %d characters; at least %d are required (openssl rand -hex 24 generates one)", len(c.Key.Reveal()), api.MinKeyLength)
		}
		return nil
	}
	if !c.AllowLoopbackWithoutKey {
		return errors.New("OVERWINTER_API_KEY is required (or pass --allow-loopback-without-key)")
	}
	if _, err := peeruser.Parse(c.AllowUsers); err != nil {
		return fmt.Errorf("--allow-users: %w", err)
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fmt.Errorf("--address %q is not of the form host:port", c.Address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--allow-loopback-without-key requires a loopback address, not %s", c.Address)
	}
	return nil
}

// Run serves until ctx ends.
func (c *apiCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
	limitMemory()
	defer runtime.KeepAlive(reserveHeap())
	var keyring *secret.Keyring
	var err error
	if !c.SecretKey.Empty() {
		if keyring, err = newKeyring(c.SecretKey, c.SecretKeyPrevious); err != nil {
			return err
		}
	}
	db, err := c.openSealed(ctx, logger, keyring)
	if err != nil {
		return err
	}
	defer db.Close()
	early, cancel := context.WithTimeout(ctx, schemaAtStart)
	err = db.SchemaCheck(early)
	cancel()
	if schemaRefused(err) {
		return err
	}
	traced, stopTracing, err := startTracing(ctx, "api")
	if err != nil {
		return err
	}
	defer stopTracing()
	registry, err := newRegistry()
	if err != nil {
		return err
	}
	if err := registry.Register(newPoolGauges(db)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	temporal, err := c.dial(logger, registry)
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer temporal.Close()

	follower := eventlog.NewFollower(db, eventlog.FollowerOptions{Logger: logger, Format: feed.Format()})
	follower.Start()
	defer follower.Stop()

	secrets, logger := maskedSecrets(db, keyring, logger)
	config := api.Config{
		Store: db, Signaler: sessionclient.New(temporal, c.TemporalNamespace, installationQueue(db)), Events: feed.Of(follower),
		Agents: catalog.Agents(), Masks: secrets, Sandbox: sandboxInfo(db, logger), Key: c.Key, WithoutKey: c.Key.Empty(), Logger: logger, Version: buildVersion(),
		Registry: registry, Traced: traced, Webhooks: db, PrivateWebhooks: c.PrivateWebhooks,
	}
	config.CORSOrigins, config.CollectWindow = c.CORSOrigins, c.CollectWindow
	if keyring != nil {
		config.Secrets, config.Tokens = keyring, keyring
	}
	if config.Callers, err = c.callers(ctx, logger); err != nil {
		return err
	}
	server, err := api.New(config)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintf(s.stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	if keyring == nil {
		logger.WarnContext(ctx, "OVERWINTER_SECRET_KEY is not set: secrets cannot be stored, transcripts cannot be read, and "+
			"once secrets are stored, files, diffs and questions cannot be read; these requests return 503")
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx, rawio.NewListener(listener)) })
	group.Go(func() error { return ignoreCanceled(secrets.load(ctx)) })
	group.Go(func() error { return secrets.follow(ctx) })
	group.Go(func() error { return ignoreCanceled(awaitSchema(ctx, db, logger)) })
	return group.Wait()
}

// callers returns the check for users that may connect without a key.
func (c *apiCmd) callers(ctx context.Context, logger *slog.Logger) (func(local, remote net.Addr) error, error) {
	if !c.Key.Empty() {
		return nil, nil
	}
	users, err := peeruser.Parse(c.AllowUsers)
	if err != nil {
		return nil, fmt.Errorf("--allow-users: %w", err)
	}
	if users.All() {
		return nil, nil
	}
	if err := peeruser.Works(ctx); err != nil {
		logger.WarnContext(ctx, "cannot tell users of this machine apart: every user can use the API without a key", slog.Any("error", err))
		return nil, nil
	}
	return users.Check, nil
}

// schemaAtStart limits how long an api waits for the database before it listens.
const schemaAtStart = 2 * time.Second

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// sandboxInfoEvery is how often the workers' description of their sandboxes is read.
const sandboxInfoEvery = time.Second

// unknownSandbox is the value of driver and isolation before a worker has described its sandboxes.
const unknownSandbox = "unknown"

// sandboxInfo returns the workers' last description of their sandboxes.
func sandboxInfo(db *postgres.DB, logger *slog.Logger) func(context.Context) api.SandboxInfo {
	var mu sync.Mutex
	var readAt time.Time
	var reading bool
	info := api.SandboxInfo{Driver: unknownSandbox, Isolation: unknownSandbox, Breakers: []api.OpenBreaker{}}
	return func(ctx context.Context) api.SandboxInfo {
		// One caller at a time queries, so that health checks do not queue up in the pool. Once a
		// worker has stored the description, queries are rare.
		mu.Lock()
		last := info
		due := !reading && (info.Driver == unknownSandbox || time.Since(readAt) >= sandboxInfoEvery)
		if due {
			reading, readAt = true, time.Now()
		}
		mu.Unlock()
		if !due {
			return last
		}
		driver, isolation, err := db.SandboxesDescription(ctx)
		var open []breaker.Breaker
		if err == nil {
			open, err = db.BreakersOpen(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		reading = false
		if err != nil {
			logger.WarnContext(ctx, "could not read the description of sandboxes", slog.Any("error", err))
			return last
		}
		info = api.SandboxInfo{Driver: driver, Isolation: isolation, Breakers: make([]api.OpenBreaker, len(open))}
		for i, b := range open {
			info.Breakers[i] = api.OpenBreaker{Agent: b.Agent, Failures: b.Failures, Since: resource.Time(b.OpenedAt), Until: resource.Time(b.RetryAt)}
		}
		return info
	}
}
