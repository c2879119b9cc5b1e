package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/devstack"
	"github.com/overwinter-dev/overwinter/internal/peeruser"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// devCmd runs the whole system on this machine.
type devCmd struct {
	DataDir           string        `env:"OVERWINTER_DATA_DIR" default:"${data_dir}" type:"path" placeholder:"DIR" help:"Directory for all state. Default ${default}."`
	APIAddress        string        `name:"api-address" default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address of the API; port 0 selects a free one. Default ${default}."`
	AllowUsers        string        `name:"allow-users" env:"OVERWINTER_ALLOW_USERS" placeholder:"NAMES" help:"Other users of this machine that may use the API and Temporal, by name or ID, such as alice,1001; all for every user. Default: this user, root, and the user who ran sudo."`
	TemporalPort      int           `default:"7233" placeholder:"N" help:"Port of Temporal; 0 selects a free one. Default ${default}."`
	TemporalUIPort    int           `name:"temporal-ui-port" default:"8233" placeholder:"N" help:"Port of Temporal's web UI; 0 selects a free one. Default ${default}."`
	LocalModalPort    int           `default:"0" placeholder:"N" help:"Port of the local Modal; 0 selects a free one and reuses it if possible. Default ${default}."`
	Isolation         string        `env:"OVERWINTER_LOCALMODAL_ISOLATION" default:"auto" placeholder:"LEVEL" help:"Isolation of the local Modal's sandboxes: namespaces, chroot, directory, or auto for the strongest that works here. Default ${default}."`
	SandboxNetwork    string        `name:"sandbox-network" env:"OVERWINTER_SANDBOX_NETWORK" default:"${sandbox_network}" placeholder:"NETWORK" help:"Network of the local Modal's sandboxes: own (the internet without this machine and private addresses), shared (this machine's), or auto for own on the level namespaces. Default ${default}."`
	SandboxHostPorts  string        `name:"sandbox-host-ports" env:"OVERWINTER_SANDBOX_HOST_PORTS" placeholder:"PORTS" help:"Ports of this machine's loopback interface that sandboxes with their own network reach as host.overwinter.internal, such as 8901,11434 or 8000-8099. Default: none."`
	DrainTimeout      time.Duration `env:"OVERWINTER_DRAIN_TIMEOUT" default:"10s" placeholder:"DURATION" help:"How long a stop waits for running turns before it interrupts them, at most 1h. All sessions hibernate then; a second signal stops at once. Default ${default}."`
	DatabaseURL       string        `name:"database-url" env:"OVERWINTER_DATABASE_URL" placeholder:"URL" help:"Postgres to use. Default: start one."`
	TemporalAddress   string        `env:"TEMPORAL_ADDRESS" placeholder:"ADDR" help:"Temporal to use. Default: start one."`
	TemporalNamespace string        `env:"TEMPORAL_NAMESPACE" default:"default" placeholder:"NAME" help:"Namespace of the sessions' workflows; it must exist. Default ${default}."`
	TemporalBinary    string        `env:"OVERWINTER_TEMPORAL_BINARY" placeholder:"FILE" help:"Temporal server to start. Default: overwinter-temporal in this program's directory or in PATH."`
	RunnerBinary      string        `env:"OVERWINTER_RUNNER_BINARY" placeholder:"FILE" help:"Program that runs in sandboxes. Default: overwinter-runner in this program's directory."`
	SecretKey         secret.Value  `env:"OVERWINTER_SECRET_KEY" placeholder:"BASE64" help:"Key of this installation. Default: generated once and stored in the data directory."`

	ModalServerURL   string       `name:"modal-server-url" env:"MODAL_SERVER_URL" hidden:""`
	ModalTokenID     string       `name:"modal-token-id" env:"MODAL_TOKEN_ID" placeholder:"ID" help:"Run sandboxes on Modal with this token; requires --modal-token-secret. Default: start a local Modal."`
	ModalTokenSecret secret.Value `name:"modal-token-secret" env:"MODAL_TOKEN_SECRET" placeholder:"SECRET" help:"See --modal-token-id."`

	corsFlags
	sandboxLimitFlags
}

// Validate checks what kong cannot.
func (c *devCmd) Validate() error {
	if _, _, _, err := parseSandbox(c.Isolation, c.SandboxNetwork, c.SandboxHostPorts); err != nil {
		return err
	}
	if _, err := c.limits(); err != nil {
		return err
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > maxDrainTimeout {
		return fmt.Errorf("--drain-timeout is %s; it must be from 0s to %s", c.DrainTimeout, maxDrainTimeout)
	}
	if err := api.CheckOrigins(c.CORSOrigins, false); err != nil {
		return fmt.Errorf("--cors-origin (OVERWINTER_CORS_ORIGINS): %w", err)
	}
	if _, err := peeruser.Parse(c.AllowUsers); err != nil {
		return fmt.Errorf("--allow-users: %w", err)
	}
	switch {
	case (c.ModalTokenID == "") != c.ModalTokenSecret.Empty():
		return fmt.Errorf("MODAL_TOKEN_ID and MODAL_TOKEN_SECRET belong together: set both, or none for a local Modal")
	case c.ModalServerURL != "" && c.ModalTokenID == "":
		return fmt.Errorf("MODAL_SERVER_URL is set: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET too, or none of them")
	}
	return nil
}

// Run keeps the system running until ctx ends. A second signal kills the whole system at once.
func (c *devCmd) Run(ctx context.Context, logger *slog.Logger, s streams, all *commands) error {
	config, err := c.config(logger, s, all)
	if err != nil {
		return err
	}
	stack, err := devstack.New(config)
	if err != nil {
		return usageError{err.Error()}
	}

	signals := make(chan os.Signal, 2) // for the first signal, which has also ended ctx, and the second
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	go killAtSecond(watching, signals, stack.Kill)
	return stack.Run(ctx)
}

// config returns the configuration from the flags and from this program's own paths.
func (c *devCmd) config(logger *slog.Logger, s streams, all *commands) (devstack.Config, error) {
	executable, err := os.Executable()
	if err != nil {
		return devstack.Config{}, fmt.Errorf("find this program: %w", err)
	}
	runner, err := runnerBinary(c.RunnerBinary)
	if err != nil {
		return devstack.Config{}, err
	}
	limits, err := c.limits()
	if err != nil {
		return devstack.Config{}, err
	}
	return devstack.Config{
		SandboxLimits:     limits,
		DataDir:           c.DataDir,
		Executable:        executable,
		RunnerBinary:      runner,
		APIAddress:        c.APIAddress,
		CORSOrigins:       c.CORSOrigins,
		AllowUsers:        c.allowUsers(os.Getenv("SUDO_UID"), os.Geteuid()),
		DatabaseURL:       c.DatabaseURL,
		TemporalAddress:   c.TemporalAddress,
		TemporalNamespace: c.TemporalNamespace,
		TemporalBinary:    c.TemporalBinary,
		TemporalPort:      c.TemporalPort,
		TemporalUIPort:    c.TemporalUIPort,
		Modal:             c.ModalTokenID != "",
		LocalModalPort:    c.LocalModalPort,
		Isolation:         c.Isolation,
		SandboxNetwork:    c.SandboxNetwork,
		SandboxHostPorts:  c.SandboxHostPorts,
		SecretKey:         c.SecretKey,
		DrainTimeout:      c.DrainTimeout,
		LogLevel:          all.LogLevel,
		Environment:       c.environment(os.Environ()),
		Migrate:           func(ctx context.Context, url string) error { return migrateUp(ctx, url, logger) },
		Output:            s.stderr,
		Color:             isTerminal(s.stderr),
		Logger:            logger,
	}, nil
}

// allowUsers returns the users that the flag names, and the user who ran sudo.
func (c *devCmd) allowUsers(sudoUID string, euid int) string {
	if _, err := strconv.ParseUint(sudoUID, 10, 31); err != nil || euid != 0 {
		return c.AllowUsers
	}
	return strings.TrimPrefix(c.AllowUsers+","+sudoUID, ",")
}

// killAtSecond calls kill when the second signal arrives.
func killAtSecond(ctx context.Context, signals <-chan os.Signal, kill func()) {
	for range 2 {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
	}
	kill()
}

// environment returns the base environment of children: that of this process, with the values of
// flags.
func (c *devCmd) environment(env []string) []string {
	if c.ModalTokenID == "" {
		return env
	}
	return append(env, "MODAL_TOKEN_ID="+c.ModalTokenID, "MODAL_TOKEN_SECRET="+c.ModalTokenSecret.Reveal())
}

// migrateUp brings the database at url up to date.
func migrateUp(ctx context.Context, url string, logger *slog.Logger) error {
	db, err := postgres.Open(ctx, url, postgres.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Migrate(ctx)
}

// defaultDataDir returns the default directory for state.
func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/overwinter"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // dev requires --data-dir in this case
	}
	return filepath.Join(home, ".local", "share", "overwinter")
}

// isTerminal reports whether escape sequences may be written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
