package postgres_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// TestMain reduces the default number of runs of properties, since each run writes to a database.
// -rapid.checks overrides it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	leaktest.Main(m)
}

func TestManyProcessesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := postgrestest.EmptyURL(t)
	db := postgrestest.Open(t, url)
	status, err := db.MigrationStatus(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, status)
	for _, m := range status {
		require.True(t, m.AppliedAt.IsZero())
	}
	var all sync.WaitGroup
	errs := make(chan error, 5)
	for range 5 {
		all.Go(func() { errs <- db.Migrate(t.Context()) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	status, err = db.MigrationStatus(t.Context())
	require.NoError(t, err)
	for i, m := range status {
		require.True(t, i == 0 || m.Version > status[i-1].Version, "in order")
		require.False(t, m.AppliedAt.IsZero(), m.Name)
	}
}

func TestInstallationHasOneID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all sync.WaitGroup
	ids := make(chan string, 6)
	for range 6 {
		all.Go(func() {
			id, err := b.Installation(b.ctx)
			if err == nil {
				ids <- id
			}
		})
	}
	all.Wait()
	close(ids)
	require.Len(t, ids, 6)
	first := <-ids
	require.Len(t, first, 32)
	for id := range ids {
		require.Equal(t, first, id)
	}
	other := setup(t)
	id, err := other.Installation(other.ctx)
	require.NoError(t, err)
	require.NotEqual(t, first, id)
}

func TestUnreachablePostgresIsUnavailable(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // a port that is never assigned
	db, err := postgres.Open(t.Context(), "postgres://u:secret@"+address+"/d?sslmode=disable", postgres.Options{ConnectTimeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	err = db.Ping(t.Context())
	requireCode(t, failure.Unavailable, err)
	require.NotContains(t, err.Error(), "secret")
	_, err = db.SessionGet(t.Context(), "ses_1")
	requireCode(t, failure.Unavailable, err)
	_, err = db.EventsAppend(t.Context(), nil)
	requireCode(t, failure.Unavailable, err)
	requireCode(t, failure.Unavailable, db.EventsListen(t.Context(), func() {}, func([]eventlog.Growth) {}))
	requireCode(t, failure.Unavailable, db.Migrate(t.Context()))

	_, err = postgres.Open(t.Context(), "postgres://u:secret@%zz/d", postgres.Options{})
	requireCode(t, failure.Invalid, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestCanceledCallerGetsItsCause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.SessionGet(ctx, b.id)
	require.ErrorIs(t, err, context.Canceled)
	requireCode(t, failure.Unavailable, err)
}

func TestClosedPoolIsUnavailable(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	require.NoError(t, db.Ping(t.Context()))
	db.Close()
	db.Close()
	requireCode(t, failure.Unavailable, db.Ping(t.Context()))
}
