package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// Stack is the whole system on one machine.
type Stack struct {
	config Config
	ready  chan struct{} // closed when all children are ready

	mu         sync.Mutex
	supervisor *child.Supervisor // nil while not running
	killed     bool
	addresses  atomic.Pointer[addresses]
}

// New returns a stack that is not running yet.
func New(c Config) (*Stack, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Stack{config: c.withDefaults(), ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed when the stack is ready.
func (s *Stack) Ready() <-chan struct{} { return s.ready }

// APIURL returns the URL of the API, "" before the stack is ready.
func (s *Stack) APIURL() string {
	if a := s.addresses.Load(); a != nil {
		return a.api
	}
	return ""
}

// Kill ends all children at once; a Run that stops or starts them returns.
func (s *Stack) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	if s.supervisor != nil {
		s.supervisor.Kill()
	}
}

// stopOrder lists dependents before their dependencies. The worker hibernates the sessions, which
// readers of the api see.
var stopOrder = []string{"worker", "api", "local-modal", "temporal", "postgres"}

// errKilled reports that the stop was not graceful.
var errKilled = errors.New("killed before everything had stopped; state is kept")

// Run starts the stack, keeps it running until ctx ends, and stops it gracefully. It returns nil
// after a requested stop, otherwise an error about the part that could not be started, or that Kill
// interrupted it. It can be called once.
func (s *Stack) Run(ctx context.Context) (err error) {
	dir, err := openDataDir(s.config.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	if err := child.EndLeftovers(ctx, dir.join("run"), s.config.Logger); err != nil {
		return fmt.Errorf("end the processes of an earlier run: %w", err)
	}

	supervisor := child.NewSupervisor(child.Options{
		RunDir: dir.join("run"),
		LogDir: dir.join("logs"),
		Echo:   s.config.Output,
		Color:  s.config.Color,
		Logger: s.config.Logger,
	})
	defer func() { err = errors.Join(err, supervisor.Close()) }()
	s.mu.Lock()
	s.supervisor = supervisor
	if s.killed {
		supervisor.Kill()
	}
	s.mu.Unlock()

	var parts sync.WaitGroup
	err = s.start(ctx, dir, supervisor, func(w watched) {
		parts.Go(func() { w.watch(ctx, s.config.Logger) })
	})
	if err == nil {
		<-ctx.Done()
		parts.Wait()
		_, _ = fmt.Fprintf(s.config.Output, "\nStopping. Running turns have %s to end, then sessions are put to sleep. Ctrl-C stops at once.\n", s.config.DrainTimeout)
	}
	for _, name := range stopOrder {
		supervisor.Stop(name)
	}
	s.mu.Lock()
	killed := s.killed
	s.mu.Unlock()
	switch {
	case killed:
		return errKilled
	case ctx.Err() != nil:
		return nil // a stop was requested, possibly during the start
	default:
		return err
	}
}

// start starts all children: first the dependencies, in parallel, then the rest. Afterwards watch
// gets the parts whose failure would not be visible to the user.
func (s *Stack) start(ctx context.Context, dir *dataDir, supervisor *child.Supervisor, watch func(watched)) error {
	began := time.Now()
	ports := newPortChooser()
	defer ports.close() // by then each part listens or has failed
	l, err := s.planLayout(ctx, dir, ports)
	if err != nil {
		return err
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startDatabase(groupCtx, l, supervisor) })
	if l.temporalBinary != "" {
		group.Go(func() error {
			return supervisor.Start(groupCtx, temporalSpec(s.config, dir, l.temporalBinary, l.temporalPort, l.temporalUIPort))
		})
	}
	if !s.config.Modal {
		group.Go(func() error { return supervisor.Start(groupCtx, localModalSpec(s.config, dir, l.localModalPort)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}

	env := programEnvironment(s.config, l.settings())
	worker, api := workerSpec(s.config, env, l.workerPort), apiSpec(s.config, env, l.apiAddress)
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return supervisor.Start(groupCtx, worker) })
	group.Go(func() error { return supervisor.Start(groupCtx, api) })
	if err := group.Wait(); err != nil {
		return err
	}

	a := l.addresses(dir)
	a.sandbox = readSandboxInfo(ctx, a.api+"/readyz")
	a.took = time.Since(began)
	s.addresses.Store(&a)
	// If the terminal is closed, the error cannot be reported.
	_, _ = io.WriteString(s.config.Output, a.banner())
	close(s.ready)
	for _, spec := range []child.Spec{worker, api} {
		watch(watched{spec.Name, spec.Ready})
	}
	if l.temporalBinary != "" {
		watch(watched{"temporal", temporalReady(l.temporalAddress)})
	}
	return nil
}

// startDatabase runs Postgres, unless one was given, and migrates the schema.
func (s *Stack) startDatabase(ctx context.Context, l *layout, supervisor *child.Supervisor) error {
	if l.postgres != nil {
		if err := l.postgres.prepare(ctx); err != nil {
			return err
		}
		if err := supervisor.Start(ctx, l.postgres.spec()); err != nil {
			return err
		}
		if err := l.postgres.createDatabase(ctx); err != nil {
			return err
		}
	}
	if err := s.config.Migrate(ctx, l.databaseURL); err != nil {
		return fmt.Errorf("bring the database up to date: %w", err)
	}
	return nil
}

// layout has the programs and ports that are chosen before anything is started.
type layout struct {
	config          Config
	postgres        *postgresServer // nil if one was given
	databaseURL     string
	temporalBinary  string // "": one was given
	temporalAddress string
	temporalPort    int
	temporalUIPort  int
	localModalPort  int
	localModalToken access.Token
	workerPort      int
	postgresPort    int
	apiAddress      string
	secretKey       string
}

// planLayout finds programs and ports, so that missing ones are reported before anything runs.
func (s *Stack) planLayout(ctx context.Context, dir *dataDir, ports *portChooser) (_ *layout, err error) {
	c := s.config
	l := &layout{config: c, databaseURL: c.DatabaseURL, temporalAddress: c.TemporalAddress, secretKey: c.SecretKey.Reveal()}
	if l.secretKey == "" {
		if l.secretKey, err = dir.secretKey(); err != nil {
			return nil, err
		}
	}
	if err := l.choosePorts(ctx, dir, ports); err != nil {
		return nil, err
	}
	if !c.Modal {
		if l.localModalToken, err = access.Load(dir.join("modal")); err != nil {
			return nil, err
		}
	}
	if c.TemporalAddress == "" {
		if l.temporalBinary, err = findTemporal(c); err != nil {
			return nil, err
		}
	}
	return l, l.findPostgres(ctx, dir)
}

// choosePorts checks the requested ports and finds the others.
func (l *layout) choosePorts(ctx context.Context, dir *dataDir, ports *portChooser) error {
	remembered := dir.readPorts()
	host, port, err := net.SplitHostPort(l.config.APIAddress)
	if err != nil {
		return fmt.Errorf("--api-address: %w", err)
	}
	wanted, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("--api-address: %w", err)
	}
	apiPort, err := ports.choose(ctx, host, wanted, 0, "--api-address")
	if err != nil {
		return err
	}
	l.apiAddress = net.JoinHostPort(host, strconv.Itoa(apiPort))
	if l.config.TemporalAddress == "" {
		if l.temporalPort, err = ports.choose(ctx, loopback, l.config.TemporalPort, 0, "--temporal-port"); err != nil {
			return err
		}
		if l.temporalUIPort, err = ports.choose(ctx, loopback, l.config.TemporalUIPort, 0, "--temporal-ui-port"); err != nil {
			return err
		}
		l.temporalAddress = loopbackAddress(l.temporalPort)
	}
	if !l.config.Modal {
		l.localModalPort, err = ports.choose(ctx, loopback, l.config.LocalModalPort, remembered.LocalModal, "--local-modal-port")
		if err != nil {
			return err
		}
		remembered.LocalModal = l.localModalPort
	}
	if l.config.DatabaseURL == "" {
		if l.postgresPort, err = ports.free(ctx, loopback, remembered.Postgres); err != nil {
			return err
		}
		remembered.Postgres = l.postgresPort
	}
	if l.workerPort, err = ports.free(ctx, loopback, remembered.Worker); err != nil {
		return err
	}
	remembered.Worker = l.workerPort
	return dir.writePorts(remembered)
}

// findPostgres decides how the database is run, unless one was given.
func (l *layout) findPostgres(ctx context.Context, dir *dataDir) (err error) {
	if l.config.DatabaseURL != "" {
		return nil
	}
	if l.postgres, err = newPostgresServer(ctx, l.config, dir, l.postgresPort); err != nil {
		return err
	}
	l.databaseURL = l.postgres.socketURL()
	// For psql and for programs outside the stack.
	return dir.write("database-url", l.postgres.url()+"\n")
}

// settings returns the variables by which worker and api find the other parts.
func (l *layout) settings() map[string]string {
	settings := map[string]string{
		"OVERWINTER_DATABASE_URL": l.databaseURL,
		"OVERWINTER_SECRET_KEY":   l.secretKey,
		"TEMPORAL_ADDRESS":        l.temporalAddress,
		"TEMPORAL_NAMESPACE":      l.config.TemporalNamespace,
		// Only dev sets this; elsewhere the api refuses to start without a key.
		"OVERWINTER_ALLOW_LOOPBACK_WITHOUT_KEY": "true",
	}
	if !slices.ContainsFunc(l.config.Environment, func(pair string) bool { return strings.HasPrefix(pair, "OVERWINTER_PUBLIC_URL=") }) {
		settings["OVERWINTER_PUBLIC_URL"] = baseURL(l.apiAddress)
	}
	if len(l.config.CORSOrigins) > 0 {
		settings["OVERWINTER_CORS_ORIGINS"] = strings.Join(l.config.CORSOrigins, ",")
	}
	if !slices.ContainsFunc(l.config.Environment, func(pair string) bool { return strings.HasPrefix(pair, "OVERWINTER_WEBHOOK_PRIVATE_ADDRESSES=") }) {
		settings["OVERWINTER_WEBHOOK_PRIVATE_ADDRESSES"] = "true" // receivers are tested on this machine
	}
	if l.config.AllowUsers != "" {
		settings["OVERWINTER_ALLOW_USERS"] = l.config.AllowUsers
	}
	if l.config.RunnerBinary != "" {
		settings["OVERWINTER_RUNNER_BINARY"] = l.config.RunnerBinary
	}
	if !l.config.Modal {
		settings["MODAL_SERVER_URL"] = "http://" + loopbackAddress(l.localModalPort)
		settings["MODAL_TOKEN_ID"] = l.localModalToken.ID
		settings["MODAL_TOKEN_SECRET"] = l.localModalToken.Secret
	}
	return settings
}

func (l *layout) addresses(dir *dataDir) addresses {
	a := addresses{
		api:      baseURL(l.apiAddress),
		worker:   "http://" + loopbackAddress(l.workerPort),
		temporal: l.temporalAddress,
		dataDir:  dir.path,
		logDir:   dir.join("logs"),
	}
	if l.temporalBinary != "" {
		a.temporalUI = "http://" + loopbackAddress(l.temporalUIPort)
	}
	if l.postgres != nil {
		a.postgres = fmt.Sprintf(`%s (psql "$(cat %s)")`, loopbackAddress(l.postgres.port), dir.join("database-url"))
	}
	if !l.config.Modal {
		a.localModal = "http://" + loopbackAddress(l.localModalPort)
		a.sharedNetwork = l.config.SandboxNetwork == string(box.SharedNetwork)
	}
	return a
}
