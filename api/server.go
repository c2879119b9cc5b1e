package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Agents is the part of the registry of agents that the API uses.
type Agents interface {
	Names() []string
	Describe() []agent.Description
	// Get returns the adapter of that name.
	Get(name string) (agent.Adapter, error)
}

// Sealer seals the value of a secret under its name.
type Sealer interface {
	Seal(name string, v secret.Value) []byte
}

// Masks masks the stored secrets.
type Masks interface {
	// Masker returns the masker for the secrets that are stored now. Error: unavailable if they
	// cannot be read.
	Masker(ctx context.Context) (*secret.Masker, error)
}

type noMasks struct{}

func (noMasks) Masker(context.Context) (*secret.Masker, error) { return nil, nil }

// SandboxInfo describes the sandboxes of this installation.
type SandboxInfo struct {
	Driver    string `json:"driver"`    // such as "modal"
	Isolation string `json:"isolation"` // such as "namespaces", or "provider" for a remote one
	// Breakers are the circuit breakers of starts that are open.
	Breakers []OpenBreaker `json:"breakers"`
}

// OpenBreaker is an open circuit breaker: starts of an agent's sandboxes keep failing, and are
// tried one at a time.
type OpenBreaker struct {
	Agent    string        `json:"agent"`
	Failures int           `json:"failures"` // in a row
	Since    resource.Time `json:"since"`
	Until    resource.Time `json:"until"` // time of the next attempt
}

// Config is the configuration of a server.
type Config struct {
	Store    Store    // required
	Signaler Signaler // required
	Events   feed.Log // required; in the form of feed.Format
	Agents   Agents   // required

	// Webhooks stores webhooks. If nil, their routes respond with not_supported.
	Webhooks Webhooks
	// PrivateWebhooks allows webhook addresses that begin with http://. Workers check the
	// destination.
	PrivateWebhooks bool

	// Secrets seals the values of secrets. If nil, secrets cannot be stored.
	Secrets Sealer
	// Tokens signs the tokens with which browsers read streams. If nil, tokens are not supported.
	Tokens Signer
	// CORSOrigins are the origins of pages that may use the API, such as https://app.example.com,
	// or "*" for all, which requires Key. Default: only the server's own origin.
	CORSOrigins []string
	// Masks masks the values of stored secrets in files, diffs, transcripts and questions. Default: nothing
	// is masked.
	Masks Masks
	// Sandbox describes the sandboxes for /readyz. Default: driver and isolation unknown.
	Sandbox func(context.Context) SandboxInfo
	// Key that callers must send, at least MinKeyLength bytes. Required, unless WithoutKey is set.
	Key secret.Value
	// WithoutKey serves callers without a key, only at a loopback address; see Callers. Key must
	// then be empty.
	WithoutKey bool
	// Callers returns an error for a connection that must not be served without a key, given its
	// local and remote address. Default: all are served.
	Callers func(local, remote net.Addr) error
	// Logger for requests and failures. Default: none.
	Logger *slog.Logger
	// Version of the program, shown by /healthz. Default "dev".
	Version string
	// Registry has the metrics that /metrics serves, including those of the server. Default: a new
	// registry.
	Registry *prometheus.Registry

	// Traced enables a span of OpenTelemetry's global provider for each request. Default: false.
	Traced bool

	// CollectWindow is how long prompts of the mode collect wait for other prompts. Default 3 s.
	CollectWindow time.Duration
	// SignalWait is how long a request waits for its signal. Default 250 ms.
	SignalWait time.Duration
	// SignalTimeout bounds a signal for stored work. Default 1 s.
	SignalTimeout time.Duration
	// ClaimWait is how long a prompt to a session with an attendant waits to be claimed before its workflow is signalled.
	// Default 250 ms.
	ClaimWait time.Duration
	// RecordAfter is how long prompts to such a session, if they are few, are collected before one
	// signal reports them to the workflow. Default 5 s.
	RecordAfter time.Duration
	// StateTimeout bounds a query of a workflow's state. Default 2 s.
	StateTimeout time.Duration
	// HistoryTimeout bounds reading the history of a workflow for an explanation. Default 6 s.
	HistoryTimeout time.Duration
	// RequestTimeout bounds every request that is not a stream. Default 15 s.
	RequestTimeout time.Duration
	// Heartbeat is the time between comments in a stream. Default 15 s.
	Heartbeat time.Duration
	// LongPoll is how long a long poll waits for events. Default 20 s.
	LongPoll time.Duration
	// LifecyclePoll is the interval at which lifecycle events are read while streams of them are
	// open. Default 250 ms.
	LifecyclePoll time.Duration
	// WriteTimeout bounds each write to a stream. Default 10 s.
	WriteTimeout time.Duration
	// MaxConnections bounds open connections; event streams have three quarters of them. Default:
	// the process's limit of open files minus 256, and at most 100,000.
	MaxConnections int
	// HeaderTimeout bounds the time that a client takes for the headers of a request. Default 10 s.
	HeaderTimeout time.Duration
	// ShutdownTimeout bounds the requests that are in progress when the server stops. Default 10 s.
	ShutdownTimeout time.Duration

	keyDelay     func(context.Context, time.Duration) // waits after a wrong key; replaced in tests
	presenceRead time.Duration                        // replaced in tests
	presenceWait time.Duration                        // replaced in tests
	pongWait     time.Duration                        // how long a client has to answer a ping. Default: two heartbeats
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Store == nil:
		return c, errors.New("api: Store is required")
	case c.Signaler == nil:
		return c, errors.New("api: Signaler is required")
	case c.Events == nil:
		return c, errors.New("api: Events is required")
	case c.Agents == nil:
		return c, errors.New("api: Agents is required")
	case c.WithoutKey && !c.Key.Empty():
		return c, errors.New("api: WithoutKey and Key are both set")
	case !c.WithoutKey && len(c.Key.Reveal()) < MinKeyLength:
		return c, fmt.Errorf("api: Key has %d bytes; at least %d are required", len(c.Key.Reveal()), MinKeyLength)
	}
	if c.Masks == nil {
		c.Masks = noMasks{}
	}
	if c.Sandbox == nil {
		c.Sandbox = func(context.Context) SandboxInfo { return SandboxInfo{Driver: "unknown", Isolation: "unknown"} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = defaultConnections()
	}
	if c.keyDelay == nil {
		c.keyDelay = sleep
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.CollectWindow, DefaultCollectWindow},
		{&c.SignalWait, 250 * time.Millisecond},
		{&c.SignalTimeout, time.Second},
		{&c.ClaimWait, 250 * time.Millisecond},
		{&c.RecordAfter, 5 * time.Second},
		{&c.StateTimeout, 2 * time.Second},
		{&c.HistoryTimeout, 6 * time.Second},
		{&c.RequestTimeout, 15 * time.Second},
		{&c.LifecyclePoll, 250 * time.Millisecond},
		{&c.Heartbeat, 15 * time.Second},
		{&c.LongPoll, 20 * time.Second},
		{&c.WriteTimeout, 10 * time.Second},
		{&c.HeaderTimeout, 10 * time.Second},
		{&c.ShutdownTimeout, 10 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	if c.pongWait <= 0 {
		c.pongWait = 2 * c.Heartbeat
	}
	return c, nil
}

// DefaultCollectWindow is the default of Config.CollectWindow.
const DefaultCollectWindow = 3 * time.Second

// Server answers HTTP requests. It is an http.Handler, and Run serves it.
type Server struct {
	cfg     Config
	logger  *slog.Logger
	echo    *echo.Echo
	metrics *metrics
	origins *http.CrossOriginProtection
	spec    specification
	known   map[string]bool // method and path of every route

	signals  signals // signals in progress
	attended *attendedPrompts

	collections *collections
	feeds       *feed.Feeds

	clients *connections
	rooms   *rooms
	changes *changes
	bodies  bodyMemory

	streams    context.Context //nolint:containedctx // ends all streams when the server stops
	endStreams context.CancelCauseFunc
}

var errSignalsFull = errors.New("api: too many signals are in progress")

// errStopping is the reason of streams that end because the server stops.
var errStopping = errors.New("api: the server is stopping")

// New returns a server that does not listen yet.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	store := cfg.Store
	cfg.Store = nil // each group of routes has its own part of the store
	spec, err := loadSpecification()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, logger: cfg.Logger, echo: echo.New(), metrics: m, origins: http.NewCrossOriginProtection(), spec: spec, bodies: newBodyMemory()}
	if err := s.admitOrigins(); err != nil {
		return nil, err
	}
	s.clients = newConnections(cfg.MaxConnections)
	s.rooms = newRooms(store, s.logger)
	s.changes = newChanges(store, s.logger)
	if cfg.presenceWait > 0 {
		s.rooms.wait = cfg.presenceWait
	}
	if cfg.presenceRead > 0 {
		s.rooms.read, s.changes.every = cfg.presenceRead, cfg.presenceRead
	}
	s.signals.slots = make(chan struct{}, signalsAtOnce)
	s.attended = newAttendedPrompts(&attendedPrompts{
		store: store, signal: s.signalStored, record: s.recordPrompts, logger: s.logger,
		claimWait: s.cfg.ClaimWait, recordAfter: s.cfg.RecordAfter,
	})
	s.collections = &collections{
		store: store, notify: s.notifyPrompt, timeout: s.cfg.RequestTimeout, logger: s.logger, timers: map[string]*time.Timer{},
	}
	s.feeds = feed.New(cfg.Events, store)
	s.streams, s.endStreams = context.WithCancelCause(context.Background())
	s.echo.HTTPErrorHandler = s.writeError
	s.echo.IPExtractor = echo.ExtractIPDirect()
	s.routes(store)
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.clients.requested(r.Context())
	s.echo.ServeHTTP(w, r)
}

// Run serves on ln until ctx is done. It then ends streams, waits up to ShutdownTimeout for other
// requests, and returns nil. It closes ln and must be called only once.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.traced(),
		ReadHeaderTimeout: s.cfg.HeaderTimeout,
		ReadTimeout:       time.Minute,     // streams remove this limit
		WriteTimeout:      2 * time.Minute, // streams set a deadline for every write
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// OPTIONS * is handled like any other request.
		DisableGeneralOptionsHandler: true,
		ConnState:                    s.clients.changed,
		ConnContext:                  withConnection,
		ErrorLog:                     slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	var tasks sync.WaitGroup
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	tasks.Go(func() { s.rooms.run(watching) })
	tasks.Go(func() { s.changes.run(watching) })
	defer func() {
		stopWatching()
		tasks.Wait()
		s.rooms.flush(watching)
	}()
	served := make(chan error, 1) // one send, with or without a receiver
	go func() { served <- srv.Serve(ln) }()

	select {
	case err := <-served:
		s.endStreams(errStopping)
		s.collections.close()
		s.attended.close()
		return fmt.Errorf("api: serve: %w", err)
	case <-ctx.Done():
	}
	s.endStreams(errStopping)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("api: requests were interrupted: %w", err), srv.Close())
	}
	select {
	case <-s.rooms.close():
	case <-grace.Done():
		err = errors.Join(err, errors.New("api: WebSockets were interrupted"))
	}
	s.collections.close()
	s.attended.close()
	s.signals.running.Wait()
	<-served //nolint:errcheck // Shutdown has said it
	return err
}

func (s *Server) stopping() bool { return s.streams.Err() != nil }
