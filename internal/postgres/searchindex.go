package postgres

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"
)

// searchIndexAge is how long a process caches the properties of the index of titles.
const searchIndexAge = time.Minute

// knownSearchIndex caches the properties of the index of titles.
type knownSearchIndex struct {
	mu    sync.Mutex
	index searchIndex
	until time.Time
}

// searchIndex returns which terms the index of titles can find. It queries the database at most
// once a minute.
func (db *DB) searchIndex(ctx context.Context) (searchIndex, error) {
	known := &db.titles
	known.mu.Lock()
	index, until := known.index, known.until
	known.mu.Unlock()
	if time.Now().Before(until) {
		return index, nil
	}
	index = searchIndex{}
	err := db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('sessions_title_trigrams') AND indisvalid)`).Scan(&index.usable)
	if err != nil {
		return searchIndex{}, fault("look for the index of titles", err)
	}
	if index.usable {
		err = db.pool.QueryRow(ctx, `SELECT cardinality(show_trgm('жук')) > 0 AND cardinality(show_trgm('日本語')) > 0`).Scan(&index.letters)
		if err != nil {
			db.logger.WarnContext(ctx, "searches use the index of titles for ASCII letters and digits only", slog.Any("error", err))
		}
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	known.index, known.until = index, time.Now().Add(searchIndexAge)
	return index, nil
}

// ensureSearchIndex creates the index of titles. It needs the extension pg_trgm, which is part of
// Postgres, but which a distribution may package separately and which the role may not be allowed
// to create. Therefore it is not a migration: without the index a search reads titles in the order
// of the list, a bounded number for each page. The first call of Migrate that can creates the
// index, and recreates it if its creation was interrupted.
func (db *DB) ensureSearchIndex(ctx context.Context, conn *sql.Conn) {
	var valid bool
	err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('sessions_title_trigrams') AND indisvalid)`).Scan(&valid)
	for _, statement := range []string{
		`CREATE EXTENSION IF NOT EXISTS pg_trgm`,
		`SET lock_timeout = 0`, // building it concurrently waits for older transactions, but blocks none
		`DROP INDEX CONCURRENTLY IF EXISTS sessions_title_trigrams`,
		`CREATE INDEX CONCURRENTLY sessions_title_trigrams ON sessions USING gin (title gin_trgm_ops) WITH (gin_pending_list_limit = 256)`,
		`RESET lock_timeout`,
	} {
		if err == nil && !valid {
			_, err = conn.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		db.logger.WarnContext(ctx, "searches in titles have no index", slog.Any("error", err))
	}
}
