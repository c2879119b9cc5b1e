package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Config configures the stack. Parts whose address is given are used there instead of being run.
type Config struct {
	// DataDir holds all state between runs; it is created if missing. Required.
	DataDir string
	// Executable is the overwinter program, which runs worker, api and local-modal as children.
	// Required.
	Executable string
	// RunnerBinary is passed to the children as OVERWINTER_RUNNER_BINARY. Default: they look for
	// it.
	RunnerBinary string
	// APIAddress is the address of the API, host:port; port 0 selects a free one. Required.
	APIAddress string
	// CORSOrigins are the origins of web pages that may use the API. Default: none.
	CORSOrigins []string
	// AllowUsers are users of this machine that may use the API and Temporal, in addition to this
	// process's user and root, in the syntax of peeruser.Parse. Default: none.
	AllowUsers string
	// DatabaseURL is the URL of an existing Postgres. Default: the stack runs one on a private data
	// directory.
	DatabaseURL string
	// TemporalAddress is the address of an existing Temporal, host:port. Default: the stack runs
	// one.
	TemporalAddress string
	// TemporalNamespace is the namespace in it. Default "default".
	TemporalNamespace string
	// TemporalBinary is the Temporal server to run. Default: overwinter-temporal, next to
	// Executable or in PATH.
	TemporalBinary string
	// TemporalPort and TemporalUIPort are the ports of the stack's Temporal; 0 selects a free one.
	TemporalPort, TemporalUIPort int
	// Modal makes sandboxes run at the Modal that Environment names. Default: the stack runs a
	// local Modal.
	Modal bool
	// LocalModalPort is the port of the local Modal; 0 selects a free one. Default 0.
	LocalModalPort int
	// Isolation is the isolation level of the local Modal, in the syntax of box.ParseIsolation.
	// Default: the best that works.
	Isolation string
	// SandboxNetwork is the network of its sandboxes, in the syntax of box.ParseNetwork. Default: a
	// separate one if possible.
	SandboxNetwork string
	// SandboxHostPorts are the ports of this machine's loopback interface that they can reach, in
	// the syntax of hostports.Parse. Default: none.
	SandboxHostPorts string
	// SandboxLimits are the limits of each sandbox; zero values select the local Modal's defaults.
	SandboxLimits box.Limits
	// DrainTimeout is how long a stop waits for running turns before it interrupts them. Default 0.
	DrainTimeout time.Duration
	// SecretKey encrypts secrets in the database: 32 bytes in base64. Default: generated at the
	// first run and stored in DataDir.
	SecretKey secret.Value
	// LogLevel is the log level of worker, api and local Modal. Default info.
	LogLevel slog.Level
	// Environment is this process's environment, as NAME=value; children get only selected
	// variables.
	Environment []string
	// Migrate migrates the database to the schema of this build. Required.
	Migrate func(ctx context.Context, databaseURL string) error
	// LoopbackURLs returns the stored URLs that point to this machine's loopback interface. Only
	// Examine calls it. Default: stored URLs are not checked.
	LoopbackURLs func(ctx context.Context, databaseURL, secretKey string) ([]LoopbackURL, error)
	// Output receives the banner and the important lines of children. Default: discarded.
	Output io.Writer
	// Color allows terminal escapes in Output. Default false.
	Color bool
	// Logger receives the supervisor's log. Default: discarded.
	Logger *slog.Logger
}

// Validate returns an error about the first field that is missing or out of bounds.
func (c Config) Validate() error {
	if c.DataDir == "" {
		return errors.New("the data directory is not set: use --data-dir")
	}
	if c.Executable == "" {
		return errors.New("the path of the overwinter program is not set")
	}
	if c.Migrate == nil {
		return errors.New("the migration is not set")
	}
	host, port, err := net.SplitHostPort(c.APIAddress)
	if err != nil {
		return fmt.Errorf("--api-address %q is not of the form host:port", c.APIAddress)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--api-address %q: %q is not a port", c.APIAddress, port)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--api-address %q is not a loopback address: dev serves without a key, to this machine only", c.APIAddress)
	}
	for flag, port := range map[string]int{
		"--temporal-port": c.TemporalPort, "--temporal-ui-port": c.TemporalUIPort, "--local-modal-port": c.LocalModalPort,
	} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s %d is not between 0 and 65535", flag, port)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.TemporalNamespace == "" {
		c.TemporalNamespace = "default"
	}
	if c.Output == nil {
		c.Output = io.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// environment returns those of the named variables that are set.
func (c Config) environment(names ...string) []string {
	var kept []string
	for _, pair := range c.Environment {
		name, _, _ := strings.Cut(pair, "=")
		for _, wanted := range names {
			if name == wanted {
				kept = append(kept, pair)
			}
		}
	}
	return kept
}

// plainEnvironment returns the environment of programs that are not overwinter's.
func (c Config) plainEnvironment() []string {
	return c.environment("PATH", "HOME", "TMPDIR", "TZ", "LANG")
}
