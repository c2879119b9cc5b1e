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

// Config says what the stack is made of. Whatever is given an address is used where it is, and not
// run.
type Config struct {
	// DataDir keeps all state between runs; it is made when missing. Required.
	DataDir string
	// Executable is the overwinter program, of which worker, api and local-modal are run as
	// children. Required.
	Executable string
	// RunnerBinary is handed to the children as OVERWINTER_RUNNER_BINARY. Default: they look for it.
	RunnerBinary string
	// APIAddress is where the API listens, host:port; port 0 stands for any. Required.
	APIAddress string
	// CORSOrigins are the origins of web pages that may use the API. Default: none.
	CORSOrigins []string
	// AllowUsers are users of this machine who may use the API and Temporal, besides this process's and root,
	// as peeruser.Parse reads them. Default: none.
	AllowUsers string
	// DatabaseURL is a Postgres to use. Default: one is run on a private data directory.
	DatabaseURL string
	// TemporalAddress is a Temporal to use, host:port. Default: one is run.
	TemporalAddress string
	// TemporalNamespace is the namespace in it. Default "default".
	TemporalNamespace string
	// TemporalBinary is the server that is run. Default: overwinter-temporal, next to Executable or
	// in PATH.
	TemporalBinary string
	// TemporalPort and TemporalUIPort are the ports of the Temporal that is run; 0 stands for any.
	TemporalPort, TemporalUIPort int
	// Modal says that sandboxes come from the Modal that Environment names. Default: a local Modal
	// is run.
	Modal bool
	// LocalModalPort is the port of the local Modal; 0 stands for any. Default 0.
	LocalModalPort int
	// Isolation is the level of the local Modal: one that box.ParseIsolation knows.
	// Default: the best that works.
	Isolation string
	// SandboxNetwork is the network of its sandboxes: one that box.ParseNetwork knows. Default: a
	// separate one if possible.
	SandboxNetwork string
	// SandboxHostPorts are the ports of this machine's loopback interface that they can
	// reach, as hostports.Parse reads them. Default: none.
	SandboxHostPorts string
	// SandboxLimits are those of each of its sandboxes; zero values are the local Modal's defaults.
	SandboxLimits box.Limits
	// DrainTimeout is how long a stop waits for running turns before it interrupts them. Default 0.
	DrainTimeout time.Duration
	// SecretKey encrypts secrets in the database: 32 bytes in base64. Default: one is made at the
	// first run and kept in DataDir.
	SecretKey secret.Value
	// LogLevel is handed to worker, api and local Modal. Default info.
	LogLevel slog.Level
	// Environment is this process's, as NAME=value; the children get what they need of it.
	Environment []string
	// Migrate brings the database to the version that this build needs. Required.
	Migrate func(ctx context.Context, databaseURL string) error
	// LoopbackURLs returns the stored URLs that lead to this machine's loopback interface. Only Examine calls
	// it. Default: they are not looked at.
	LoopbackURLs func(ctx context.Context, databaseURL, secretKey string) ([]LoopbackURL, error)
	// Output is where the banner goes, and the lines of children that matter. Default: discarded.
	Output io.Writer
	// Color allows terminal escapes in Output. Default false.
	Color bool
	// Logger receives what the supervisor does. Default: discarded.
	Logger *slog.Logger
}

// Validate names the first field that is missing or out of bounds.
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

// environment returns the named variables of the environment, those that are set.
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

// plainEnvironment is what a program that knows nothing of overwinter gets.
func (c Config) plainEnvironment() []string {
	return c.environment("PATH", "HOME", "TMPDIR", "TZ", "LANG")
}
