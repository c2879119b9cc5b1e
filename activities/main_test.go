package activities_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// runnerBinary is the path of the runner for sandboxes, built for this run of the tests.
var runnerBinary string

// modal is the local Modal of this run of the tests. Every test has its own installation there, so
// tests do not see each other's sandboxes.
var modal *localmodal.Server

// modalDir is its data directory.
var modalDir string

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	if order := os.Getenv(workerVariable); order != "" {
		os.Exit(workerMain(order))
	}
	code, err := execute(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func execute(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp(memorytest.Executable(), "activities")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	runnerBinary = filepath.Join(dir, "overwinter-runner")
	// With the flags of the Makefile, whose packages are compiled already.
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", runnerBinary, "github.com/overwinter-dev/overwinter/cmd/overwinter-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the runner: %w: %s", err, out)
	}
	modalDir = filepath.Join(dir, "modal")
	ports, err := hostports.Parse(hostPorts)
	if err != nil {
		return 1, err
	}
	if modal, err = localmodal.New(localmodal.Options{DataDir: modalDir, Network: box.AutoNetwork, HostPorts: ports}); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = modal.Run(ctx) })
	code = m.Run()
	cancel()
	serving.Wait()
	if served == nil && code == 0 {
		served = leaktest.Find()
	}
	return code, served
}
