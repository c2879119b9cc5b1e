package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

func TestDatabaseWithFullDiskIsNotReady(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	disk := filepath.Join(dir, "d")
	require.NoError(t, os.Mkdir(disk, 0o777))
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=192m,mode=1777"); err != nil {
		t.Skipf("a file system needs a mount: %v", err)
	}
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return syscall.Unmount(disk, 0) == nil }, waitLimit, 20*time.Millisecond)
		require.NoError(t, os.Remove(disk))
	})
	server := postgrestest.StartServer(t, disk)
	b := &harness{url: server.URL(t), ctx: t.Context()}
	b.DB = postgrestest.Open(t, b.url)
	b.id = b.session(t)
	require.NoError(t, b.Ready(t.Context()))

	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	require.Eventually(t, func() bool {
		err := b.Ready(t.Context())
		if err == nil {
			fill(t, filler) // space that the server has released since
			return false
		}
		return failure.CodeOf(err) == failure.Unavailable
	}, waitLimit, 100*time.Millisecond)
	require.ErrorContains(t, b.Ready(t.Context()), "cannot be written to: its disk is full")
	_, err := b.SessionGet(t.Context(), b.id)
	require.NoError(t, err, "it can still be read")

	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return b.Ready(t.Context()) == nil }, waitLimit, 100*time.Millisecond)
	_, _, _, err = b.PromptSubmit(t.Context(), prompt(b.id))
	require.NoError(t, err)
}

// fill appends to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
}

func TestReadOnlyDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, "DO $$ BEGIN EXECUTE 'ALTER DATABASE '||current_database()||' SET default_transaction_read_only = on'; END $$")
	db := b.open(t, postgres.Options{CallTimeout: waitLimit})
	err := db.Ready(t.Context())
	requireCode(t, failure.Unavailable, err)
	require.ErrorContains(t, err, "read-only")
}

func TestChecksDoNotPileUpWhilePostgresIsFrozen(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, shortDir(t))
	b := &harness{url: server.URL(t), ctx: t.Context()}
	db := b.open(t, postgres.Options{MaxConns: 4})
	require.NoError(t, db.Ready(t.Context()))
	thaw := server.Freeze(t)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := db.Ready(ctx)
			require.ErrorContains(t, err, "does not answer")
		})
	}
	all.Wait()
	require.LessOrEqual(t, db.ConnsInUse(), 1)
	thaw()
	require.Eventually(t, func() bool { return db.Ready(t.Context()) == nil }, waitLimit, 20*time.Millisecond)
}

func TestSchemaOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.SchemaCheck(t.Context()))
	status, err := b.MigrationStatus(t.Context())
	require.NoError(t, err)
	newest := status[len(status)-1].Version

	b.sql(t, "DELETE FROM goose_db_version WHERE version_id = $1", newest)
	err = b.SchemaCheck(t.Context())
	requireCode(t, failure.IllegalState, err)
	require.ErrorContains(t, err, "too old")
	require.ErrorContains(t, b.open(t, postgres.Options{}).Ready(t.Context()), "too old")

	b.sql(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true), ($2, true)", newest, newest+1)
	err = b.SchemaCheck(t.Context())
	requireCode(t, failure.IllegalState, err)
	require.ErrorContains(t, err, "too new")
	require.ErrorContains(t, b.open(t, postgres.Options{}).Ready(t.Context()), "too new")
	allowing := b.open(t, postgres.Options{AllowNewerSchema: true})
	require.NoError(t, allowing.SchemaCheck(t.Context()))
	require.NoError(t, allowing.Ready(t.Context()))

	empty := postgrestest.Open(t, postgrestest.EmptyURL(t))
	require.ErrorContains(t, empty.SchemaCheck(t.Context()), "too old")
}

// TestMigrationWaitingForBackupDoesNotBlockOthers locks a table like pg_dump. A migration that
// waited for the lock without a limit would block every later statement.
func TestMigrationWaitingForBackupDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, "ALTER TABLE runs DROP COLUMN losses, DROP COLUMN losses_frame, DROP COLUMN doing")
	b.sql(t, "DELETE FROM goose_db_version WHERE version_id = 68")
	backup, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer backup.Close(context.Background())
	_, err = backup.Exec(t.Context(), "BEGIN; LOCK TABLE runs IN ACCESS SHARE MODE")
	require.NoError(t, err)
	migrated := make(chan error, 1) // one send
	go func() { migrated <- b.Migrate(t.Context()) }()
	require.Eventually(t, func() bool { return b.waitsForLock(t) }, waitLimit, 5*time.Millisecond)
	b.sql(t, "SELECT count(*) FROM runs") // waits until the migration releases the lock
	select {
	case err := <-migrated:
		require.NoError(t, errors.Join(err, errors.New("it cannot have the lock")))
	default:
	}
	_, err = backup.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-migrated)
	require.NoError(t, b.SchemaCheck(t.Context()))
}
