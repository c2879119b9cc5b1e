package postgres

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"
)

// searchIndexAge is for how long a process believes what it has found out about the index of titles.
const searchIndexAge = time.Minute

// knownSearchIndex is what a process knows of the index of titles.
type knownSearchIndex struct {
	mu    sync.Mutex
	index searchIndex
	until time.Time
}

// searchIndex asks what the index of titles can find, at most once a minute.
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

// ensureSearchIndex makes the index of titles. It needs the extension pg_trgm, which comes with Postgres, but which a
// distribution may package separately and which the role may not be allowed to create. So it is none of the
// migrations: without it a search reads titles in the order of the list, a bounded number for each page. It is made
// by the first migration that can, and again after one that was interrupted.
func (db *DB) ensureSearchIndex(ctx context.Context, conn *sql.Conn) {
	var valid bool
	err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('sessions_title_trigrams') AND indisvalid)`).Scan(&valid)
	for _, statement := range []string{
		`CREATE EXTENSION IF NOT EXISTS pg_trgm`,
		`SET lock_timeout = 0`, // building it concurrently waits for older transactions, but nothing waits for it
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
