package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// eventuallyTimeout bounds every wait of a test. Waits are short on an idle machine, but the
	// tests of all packages share the machine.
	eventuallyTimeout = 2 * time.Minute
	eventuallyTick    = 5 * time.Millisecond
)

func TestSessionCommandsReadEnvironment(t *testing.T) {
	store, _, url := sessionServer(t, "secret-key-of-a-test")
	store.Put(session.Running)
	t.Setenv("OVERWINTER_API_URL", url)
	r := run(t.Context(), "session", "list")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "unauthorized")
	t.Setenv("OVERWINTER_API_KEY", "secret-key-of-a-test")
	r = run(t.Context(), "session", "list", "-o", "json")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"status": "running"`)
	require.NotContains(t, run(t.Context(), "session", "list", "--help").stdout, "secret-key-of-a-test")
}
