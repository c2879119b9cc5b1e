package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of the migrating process; other processes wait for it and then
// find the schema up to date.
const migrationLock = 0x6f766572_77696e74 // "overwint"

// minServerVersion is the lowest supported server_version_num of Postgres.
const minServerVersion = 150000

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero while it is pending
}

// Limits of locks while migrating.
const (
	// ddlLockTimeout is how long a step waits for a table. Statements that queue up after it wait
	// at most that long, regardless of what holds the table.
	ddlLockTimeout = 3 * time.Second
	// ddlPause is the pause between two attempts at a step, during which waiting statements
	// proceed.
	ddlPause = 2 * time.Second
	// ddlRetryLimit is how long a step is retried before Migrate fails.
	ddlRetryLimit = 10 * time.Minute
)

// Migrate brings the schema up to date. Any number of processes may call it concurrently. Each step
// is one transaction; a failed step changes nothing. A step that cannot lock its tables within
// seconds, for example because of a backup, is retried after a pause in which waiting statements
// proceed.
func (db *DB) Migrate(ctx context.Context) error {
	return db.withMigrations("migrate", func(conn *sql.DB, p *goose.Provider) error {
		lock, err := conn.Conn(ctx)
		if err != nil {
			return err
		}
		// The server releases the lock with its connection, even if this process dies.
		defer lock.Close()
		var version int
		if err := lock.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
			return err
		}
		if version < minServerVersion {
			return failure.Errorf(failure.Unavailable, "Postgres 15 or newer is required; the server has version %d", version/10000)
		}
		if err := db.lockMigrations(ctx, lock); err != nil {
			return err
		}
		defer lock.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock)) //nolint:errcheck // see above
		for begun := time.Now(); ; {
			applied, err := p.Up(ctx)
			if failed, ok := errors.AsType[*goose.PartialError](err); ok {
				applied = failed.Applied
			}
			db.reportMigrations(ctx, applied)
			if err == nil {
				db.ensureSearchIndex(ctx, lock)
			}
			if !isLockTimeout(err) || time.Since(begun) > ddlRetryLimit {
				return err
			}
			db.logger.WarnContext(ctx, "a migration waits for a lock; retrying", slog.Any("error", err), slog.Duration("backoff", ddlPause))
			if err := pause(ctx, ddlPause); err != nil {
				return err
			}
		}
	})
}

// reportMigrations logs each step. It logs those of an empty database as one, because none of them
// changes existing data.
func (db *DB) reportMigrations(ctx context.Context, applied []*goose.MigrationResult) {
	if len(applied) > 1 && applied[0].Source.Version == 1 {
		var took time.Duration
		for _, m := range applied {
			took += m.Duration
		}
		last := applied[len(applied)-1].Source.Version
		db.logger.InfoContext(ctx, "created the schema", slog.Int64("version", last), slog.Duration("took", took))
		return
	}
	for _, m := range applied {
		db.logger.InfoContext(ctx, "migrated the schema", slog.Int64("version", m.Source.Version),
			slog.String("name", path.Base(m.Source.Path)), slog.Duration("took", m.Duration))
	}
}

// lockMigrations waits until no other process migrates.
func (db *DB) lockMigrations(ctx context.Context, conn *sql.Conn) error {
	for logged := false; ; logged = true {
		var got bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&got); err != nil || got {
			return err
		}
		if !logged {
			db.logger.InfoContext(ctx, "waiting for another process to finish migrating")
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SchemaCheck returns illegal_state if migrations of this program are missing, or if a newer
// program has added some, unless Options allow that.
func (db *DB) SchemaCheck(ctx context.Context) error {
	want, err := embeddedVersions()
	if err != nil {
		return err
	}
	rows, err := db.pool.Query(ctx, "SELECT DISTINCT version_id FROM goose_db_version WHERE is_applied AND version_id > 0 ORDER BY version_id")
	var have []int64
	if err == nil {
		have, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42P01" { // no such table
		have, err = nil, nil
	}
	if err != nil {
		return fault("read the version of the schema", err)
	}
	newest := want[len(want)-1]
	if i := slices.IndexFunc(want, func(v int64) bool { return !slices.Contains(have, v) }); i >= 0 {
		return illegal("the schema is too old: migration %d of this program (schema version %d) is not applied; run overwinter migrate up", want[i], newest)
	}
	if has := have[len(have)-1]; has > newest && !db.options.AllowNewerSchema {
		return illegal("the schema is too new: it has version %d, this program knows %d; run the release that migrated it", has, newest)
	}
	return nil
}

// embeddedVersions are the versions of the migrations of this program, in order.
func embeddedVersions() ([]int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("embedded migrations: %w", err)
	}
	versions := make([]int64, len(files))
	for i, file := range files {
		if versions[i], err = goose.NumericComponent(file); err != nil {
			return nil, fmt.Errorf("embedded migrations: %w", err)
		}
	}
	slices.Sort(versions)
	return versions, nil
}

// MigrationStatus lists all steps in order, applied or pending.
func (db *DB) MigrationStatus(ctx context.Context) ([]Migration, error) {
	var out []Migration
	err := db.withMigrations("read the state of the schema", func(_ *sql.DB, p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, s := range status {
			out = append(out, Migration{Version: s.Source.Version, Name: path.Base(s.Source.Path), AppliedAt: s.AppliedAt.UTC()})
		}
		return err
	})
	return out, err
}

func (db *DB) withMigrations(doing string, do func(*sql.DB, *goose.Provider) error) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	config := db.conn.Copy()
	// A step may take long, but must not wait long for locks.
	delete(config.RuntimeParams, "idle_in_transaction_session_timeout")
	delete(config.RuntimeParams, "statement_timeout")
	config.RuntimeParams["lock_timeout"] = milliseconds(ddlLockTimeout)
	conn := stdlib.OpenDB(*config)
	defer conn.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithDisableGlobalRegistry(true),
		// A step that was merged after a newer one is applied out of order.
		goose.WithAllowOutofOrder(true))
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	return fault(doing, do(conn, p))
}
