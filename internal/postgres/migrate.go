package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/overwinter-dev/overwinter/internal/session"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that one migrating process holds; the others
// wait for it and then find nothing to do.
const migrationLock = 0x6f766572_77696e74 // "overwint"

// minServerVersion is what the SQL is written for, as Postgres numbers itself.
const minServerVersion = 150000

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero while it is pending
}

// Migrate brings the schema up to date. Any number of processes may call it at
// once. Each step is one transaction; a failed one changes nothing.
func (db *DB) Migrate(ctx context.Context) error {
	return db.withMigrations("migrate", func(conn *sql.DB, p *goose.Provider) error {
		lock, err := conn.Conn(ctx)
		if err != nil {
			return err
		}
		// The lock goes with its connection, whatever happens to this process.
		defer lock.Close()
		var version int
		if err := lock.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
			return err
		}
		if version < minServerVersion {
			return session.Faultf(session.CodeUnavailable, "Postgres 15 or newer is needed, the server is version %d", version/10000)
		}
		if _, err := lock.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		defer lock.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock)) //nolint:errcheck // see above
		applied, err := p.Up(ctx)
		for _, m := range applied {
			db.logger.InfoContext(ctx, "migrated the schema", slog.Int64("version", m.Source.Version),
				slog.String("name", path.Base(m.Source.Path)), slog.Duration("took", m.Duration))
		}
		return err
	})
}

// MigrationStatus lists every step in order, done or pending.
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
	delete(config.RuntimeParams, "idle_in_transaction_session_timeout")
	conn := stdlib.OpenDB(*config)
	defer conn.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	return fault(doing, do(conn, p))
}
