package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/klauspost/compress/zstd"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Options are the choices of a pool of connections.
type Options struct {
	// Logger gets what cannot be returned. Default: nothing is logged.
	Logger *slog.Logger
	// MaxConns is how many connections the pool holds at most. Default 16.
	MaxConns int32
	// ConnectTimeout bounds one attempt to connect. Default 5s.
	ConnectTimeout time.Duration
}

// DB is everything that is stored, behind a pool of connections. It is safe for
// concurrent use. Its methods return *session.Fault and no error of the driver:
// not found, illegal_state and the like where the rows say no, unavailable where
// Postgres cannot be reached or asks to try again, internal for the rest.
type DB struct {
	pool   *pgxpool.Pool
	conn   *pgx.ConnConfig // for connections outside of the pool
	q      *dbsqlc.Queries
	logger *slog.Logger
	zip    *zstd.Encoder
	unzip  *zstd.Decoder
}

// Open makes a pool for the database at url, a postgres:// address or a keyword
// string. It does not connect: a Postgres that is away shows with the first call.
// An address that cannot be read is an error.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxConns == 0 {
		o.MaxConns = 16
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The driver's text repeats the address, and with it the password.
		return nil, session.Faultf(session.CodeInvalid, "the database URL cannot be read")
	}
	config.MaxConns = o.MaxConns
	config.ConnConfig.ConnectTimeout = o.ConnectTimeout
	params := config.ConnConfig.RuntimeParams
	setDefault(params, "application_name", "overwinter")
	setDefault(params, "timezone", "UTC")
	// A process that stops in the middle of a transaction holds the lock of a
	// session; nothing of ours thinks for that long between two statements.
	setDefault(params, "idle_in_transaction_session_timeout", "30s")
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fault("open the database", err)
	}
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	return &DB{
		pool: pool, conn: config.ConnConfig.Copy(), q: dbsqlc.New(), logger: o.Logger,
		zip: zip, unzip: unzip,
	}, nil
}

func setDefault(params map[string]string, name, value string) {
	if _, ok := params[name]; !ok {
		params[name] = value
	}
}

// Close returns when every connection is closed; calls under way end first. It
// may be called twice.
func (db *DB) Close() {
	db.pool.Close()
	db.unzip.Close()
}

// Ping reports whether Postgres answers.
func (db *DB) Ping(ctx context.Context) error {
	return fault("ping", db.pool.Ping(ctx))
}

// Installation is the id of this database's installation: 32 hexadecimal digits,
// made with the first call and the same ever after.
func (db *DB) Installation(ctx context.Context) (string, error) {
	id, err := db.q.InstallationGet(ctx, db.pool)
	if err == nil {
		return id, nil
	}
	if !isNoRows(err) {
		return "", fault("read the installation", err)
	}
	if err := db.q.InstallationEnsure(ctx, db.pool, session.NewID("")); err != nil {
		return "", fault("name the installation", err)
	}
	id, err = db.q.InstallationGet(ctx, db.pool)
	return id, fault("read the installation", err)
}
