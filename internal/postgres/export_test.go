package postgres

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/listing"
)

var (
	ErrRowOrder = errRowOrder
	ErrPacked   = errPacked
)

// EventRows returns how many rows with events a page of a session has, of at most limit events.
func (db *DB) EventRows(ctx context.Context, sessionID string, limit int) (n int, err error) {
	rows, err := db.pool.Query(ctx, eventsRead, []string{sessionID}, []int64{0}, []int64{1 << 62}, []int32{int32(limit)}, []int64{eventlog.PageBytes})
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if values := rows.RawValues(); values[7] != nil { // data
			n++
		}
	}
	return n, rows.Err()
}

// FillPages fills a page with the rows of a statement.
func (db *DB) FillPages(ctx context.Context, statement string, page *eventlog.Page) error {
	rows, err := db.pool.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	return fillPages(rows, []*eventlog.Page{page})
}

// Conversation reads all pages.
func (db *DB) Conversation(ctx context.Context, sessionID string) (conversation.Conversation, error) {
	return ReadConversation(ctx, db, sessionID, 0)
}

// ReadConversation reads pages of at most the given number of blocks.
func ReadConversation(ctx context.Context, db *DB, sessionID string, limit int) (whole conversation.Conversation, err error) {
	for cursor := ""; ; {
		page, next, err := db.ConversationPage(ctx, sessionID, limit, cursor)
		if err != nil {
			return conversation.Conversation{}, err
		}
		whole.Seq = page.Seq
		for _, thread := range page.Threads {
			at := slices.IndexFunc(whole.Threads, func(t conversation.Thread) bool { return t.ID == thread.ID })
			if at < 0 {
				whole.Threads = append(whole.Threads, thread)
				continue
			}
			whole.Threads[at].Blocks = append(whole.Threads[at].Blocks, thread.Blocks...)
		}
		if next == "" {
			return whole, nil
		}
		cursor = next
	}
}

// HoldSession locks a session as every write does and calls held under the lock.
func HoldSession(ctx context.Context, db *DB, sessionID string, held func()) error {
	return db.inSession(ctx, "hold a session", sessionID, func(*sessionTx) error {
		held()
		return nil
	})
}

// Settings returns the server's settings of a connection of the pool.
func (db *DB) Settings(ctx context.Context, t *testing.T, names ...string) []string {
	t.Helper()
	var out []string
	for _, name := range names {
		var value string
		require.NoError(t, db.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value))
		out = append(out, value)
	}
	return out
}

// ServerTimeouts returns the limits that the server applies to a connection of the pool.
func (db *DB) ServerTimeouts(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	names := []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
	out := map[string]string{}
	for i, value := range db.Settings(ctx, t, names...) {
		out[names[i]] = value
	}
	return out
}

// SocketOptions returns the options of a TCP connection of the pool.
func SocketOptions(ctx context.Context, t *testing.T, db *DB) map[string]int {
	t.Helper()
	conn, err := db.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	tcp, ok := conn.Conn().PgConn().Conn().(syscall.Conn)
	require.True(t, ok)
	raw, err := tcp.SyscallConn()
	require.NoError(t, err)
	out := map[string]int{}
	require.NoError(t, raw.Control(func(fd uintptr) {
		for name, option := range map[string][2]int{
			"user timeout": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
			"idle":         {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
			"interval":     {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			"count":        {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
			"keepalive":    {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		} {
			value, err := unix.GetsockoptInt(int(fd), option[0], option[1])
			require.NoError(t, err)
			out[name] = value
		}
	}))
	return out
}

// ConnsInUse returns the number of connections that calls hold.
func (db *DB) ConnsInUse() int { return int(db.pool.Stat().AcquiredConns()) }

// InBulk returns the statement limit in a bulk call and the remaining time of the call.
func InBulk(ctx context.Context, t *testing.T, db *DB, sessionID string) (limit string, left time.Duration) {
	t.Helper()
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	return InCall(ctx, t, db, sessionID), time.Until(deadline)
}

// InCall returns the statement limit in a call.
func InCall(ctx context.Context, t *testing.T, db *DB, sessionID string) (limit string) {
	t.Helper()
	require.NoError(t, db.inSession(ctx, "look at limits", sessionID, func(s *sessionTx) error {
		return s.QueryRow(ctx, "SELECT current_setting('statement_timeout')").Scan(&limit)
	}))
	return limit
}

// ListPlans returns the plans of the statements that may run for the first page of a list, by step.
func (db *DB) ListPlans(ctx context.Context, t *testing.T, f listing.Filter) map[string]string {
	t.Helper()
	l, err := newListing(f)
	require.NoError(t, err)
	l.search, err = db.searchIndex(ctx)
	require.NoError(t, err)
	tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{})
	require.NoError(t, err)
	defer tx.Rollback(ctx) //nolint:errcheck // nothing has changed
	explain := func(s statement) string {
		rows, err := tx.Query(ctx, "EXPLAIN "+s.sql, s.args...)
		require.NoError(t, err, s.sql)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, s.sql)
		return strings.Join(lines, "\n")
	}
	plans := map[string]string{"walk": explain(l.walk(nil, shortWalk)), "end": explain(l.walkEnd(nil, shortWalk))}
	l.after = &listKey{ID: "ses_8", At: time.Now().Add(-time.Hour)}
	plans["later walk"] = explain(l.walk(l.after, longWalk))
	if s, ok := l.lookup(); ok && l.filtered() {
		_, err := tx.Exec(ctx, "SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
		require.NoError(t, err)
		plans["lookup"] = explain(s)
	}
	return plans
}

// BackendPID returns the server process of a connection of the pool.
func (db *DB) BackendPID(ctx context.Context, t *testing.T) (pid int) {
	t.Helper()
	require.NoError(t, db.pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

// PurgeTables returns the tables that a purge empties.
func PurgeTables() []string {
	var out []string
	for _, t := range append(purgeContent[:len(purgeContent):len(purgeContent)], purgeRecords...) {
		out = append(out, t.name)
	}
	return out
}

// MigrateTo applies migrations up to a version.
func (db *DB) MigrateTo(ctx context.Context, version int64) error {
	return db.withMigrations("migrate", func(_ *sql.DB, p *goose.Provider) error {
		_, err := p.UpTo(ctx, version)
		return err
	})
}

// SearchRuns returns the parts of words that a search looks up in the index of titles.
func SearchRuns(words ...string) []string {
	return searchIndex{usable: true, letters: true}.runs(words)
}

// MaxTrigrams bounds their trigrams.
const MaxTrigrams = maxTrigrams

// ReportStatistics makes the only connection of a pool report its statistics.
func (db *DB) ReportStatistics(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, "SELECT pg_stat_force_next_flush()")
	return err
}
