// Package temporaltest starts Temporal for the tests of a package.
package temporaltest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
)

// startTimeout bounds the start, which is short on an idle machine; the tests of all packages share
// the machine.
const startTimeout = 2 * time.Minute

// Start starts the program bin/overwinter-temporal below root, the directory of the module, with a
// database in memory. It and its client print errors to stderr. The caller must stop the server.
func Start(root string) (*testsuite.DevServer, error) {
	program, err := filepath.Abs(filepath.Join(root, "bin", "overwinter-temporal"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the tests need bin/overwinter-temporal; run make build")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := testsuite.StartDevServer(ctx, testsuite.DevServerOptions{
		ExistingPath: program, LogLevel: "error", Stdout: os.Stderr, Stderr: os.Stderr,
		ClientOptions: &client.Options{Logger: log.NewStructuredLogger(logger)},
	})
	if err != nil {
		return nil, fmt.Errorf("start Temporal: %w", err)
	}
	return server, nil
}
