package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
)

const temporalProgram = "overwinter-temporal"

// findTemporal returns the path of the Temporal server.
func findTemporal(c Config) (string, error) {
	if c.TemporalBinary != "" {
		if _, err := os.Stat(c.TemporalBinary); err != nil {
			return "", fmt.Errorf("--temporal-binary %s cannot be used: %w", c.TemporalBinary, reason(err))
		}
		return filepath.Abs(c.TemporalBinary)
	}
	sibling := filepath.Join(filepath.Dir(c.Executable), temporalProgram)
	_, err := os.Stat(sibling)
	if err == nil {
		return sibling, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for %s: %w", temporalProgram, err)
	}
	if path, err := exec.LookPath(temporalProgram); err == nil {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%s is neither in %s nor in PATH: run make build, or give the address of a running Temporal with --temporal-address",
		temporalProgram, filepath.Dir(c.Executable))
}

// temporalSpec runs the Temporal server.
func temporalSpec(c Config, dir *dataDir, path string, port, uiPort int) child.Spec {
	args := []string{
		"serve",
		"--ip", loopback,
		"--port", strconv.Itoa(port),
		"--ui-port", strconv.Itoa(uiPort),
		"--db-file", dir.join("temporal", "temporal.db"),
		"--namespace", c.TemporalNamespace,
		"--log-level", "warn",
		"--exit-with-stdin",
	}
	if c.AllowUsers != "" {
		args = append(args, "--allow-users", c.AllowUsers)
	}
	return child.Spec{
		Name: "temporal",
		Command: child.Command{
			Path:        path,
			Args:        args,
			Env:         c.plainEnvironment(),
			DeathSignal: syscall.SIGKILL,
			HoldStdin:   true,
		},
		Ready:       temporalReady(loopbackAddress(port)),
		StopTimeout: 12 * time.Second, // it limits itself to 8
		// Its services log warnings about each other whenever one is slightly late.
		EchoLevel: slog.LevelError,
	}
}
