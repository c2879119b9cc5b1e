package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// temporalServer is a Temporal server with a client.
type temporalServer struct {
	*supervised // nil for the one that the tests share
	address     string
	client      client.Client
}

// sharedTemporal returns the Temporal server that the tests share. Systems do not disturb each other
// there: the names of their queues and schedules have the id of the installation.
func sharedTemporal(t *testing.T) *temporalServer {
	t.Helper()
	s := &temporalServer{address: sharedTemporalAddress(t)}
	s.connect(t)
	return s
}

func sharedTemporalAddress(t *testing.T) string {
	t.Helper()
	theSharedTemporal.Do(func() {
		theSharedTemporal.address, theSharedTemporal.alive, theSharedTemporal.err = startSharedTemporal(porttest.Free(t))
	})
	require.NoError(t, theSharedTemporal.err)
	return theSharedTemporal.address
}

// theSharedTemporal has its database in memory and ends with this process.
var theSharedTemporal struct {
	sync.Once
	address string
	err     error
	alive   io.Closer // stdin of the server, which ends with it
}

func startSharedTemporal(port int) (address string, alive io.Closer, err error) {
	path, err := builtProgram("overwinter-temporal")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(path, "serve", "--port", strconv.Itoa(port), "--headless", "--log-level", "error", "--exit-with-stdin")
	cmd.Env = append(os.Environ(), lazyCollector)
	if alive, err = cmd.StdinPipe(); err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel ends the program when the thread that started it ends
		started <- cmd.Start()
		select {}
	}()
	if err := <-started; err != nil {
		return "", nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, out) }() // a full pipe would block the server
			return fmt.Sprintf("127.0.0.1:%d", port), alive, nil
		}
	}
	return "", nil, errors.New("the Temporal server that the tests share did not start")
}

// connect sets the client, which is closed when the test ends.
func (s *temporalServer) connect(t *testing.T) {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: s.address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	s.client = c
	t.Cleanup(c.Close)
}

// startTemporal starts a server for one test, and restarts it whenever it ends.
func startTemporal(t *testing.T) *temporalServer {
	t.Helper()
	port, uiPort := porttest.Free(t), porttest.Free(t)
	dir, path, out := t.TempDir(), program(t, "overwinter-temporal"), &safeBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			text := out.String()
			t.Logf("output of Temporal:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
	s := &temporalServer{address: fmt.Sprintf("127.0.0.1:%d", port)}
	s.supervised = supervise(t, func() *exec.Cmd {
		cmd := exec.Command(path, "serve", "--ip", "127.0.0.1",
			"--port", strconv.Itoa(port), "--ui-port", strconv.Itoa(uiPort),
			"--db-file", filepath.Join(dir, "temporal.db"), "--namespace", "default", "--log-level", "warn")
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), lazyCollector), out, out
		return cmd
	})
	s.connect(t)
	eventually(t, 60*time.Second, "Temporal answers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.client.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
	return s
}
