package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

func TestAPIAndWorkerRefuseSchemaOfAnotherRelease(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	sql := func(statement string) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	refused := func(want string) {
		t.Helper()
		for _, args := range [][]string{
			{"api", "--allow-loopback-without-key", "--address=127.0.0.1:0"},
			{"worker", "--secret-key=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "--modal-token-id=x", "--modal-token-secret=x", "--runner-binary=/bin/true"},
		} {
			r := run(t.Context(), append(args, "--database-url="+url)...)
			require.Equal(t, exitFailed, r.code, r.stderr)
			require.Contains(t, r.stderr, want)
		}
	}
	sql("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
	refused("the schema is too new: it has version 99999")
	sql("DELETE FROM goose_db_version WHERE version_id IN (99999, 20)")
	refused("the schema is too old: migration 20 of this program")
}

func TestDatabaseLimitsAreChecked(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--database-max-conns=1":                     "must be from 2 to 1000",
		"--database-call-timeout=10ms":               "must be at least 1s",
		"--database-lock-timeout=1ms":                "must be at least 100ms",
		"--database-unanswered-timeout=1s":           "must be at least 5s",
		"--database-bulk-timeout=2s":                 "must be at least 15s",
		"--database-statement-timeout=1ms":           "must be at least 100ms",
		"--database-idle-in-transaction-timeout=1ms": "must be at least 100ms",
	} {
		r := run(t.Context(), "api", "--allow-loopback-without-key", "--address=127.0.0.1:0", "--database-url=postgres://u@127.0.0.1:1/d", flag)
		require.Equal(t, exitUsage, r.code, "%s: %s", flag, r.stderr)
		require.Contains(t, r.stderr, want)
	}
}

func TestWorkerWaitsForUnavailableDatabase(t *testing.T) {
	t.Parallel()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan result, 1) // one send
	go func() {
		ended <- run(ctx, "worker", "--secret-key=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "--modal-token-id=x",
			"--modal-token-secret=x", "--runner-binary=/bin/true", "--temporal-address=127.0.0.1:1",
			"--database-url=postgres://u@127.0.0.1:1/d", "--health-address="+address)
	}()
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		require.Contains(t, string(body), `"worker":"the worker waits for the database"`)
		return true
	}, 2*time.Minute, 20*time.Millisecond)
	stop()
	r := <-ended
	require.Equal(t, exitDone, r.code, r.stderr)
}
