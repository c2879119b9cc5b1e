package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/rawio"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Options configure a connection pool. For a zero field, the corresponding parameter of the URL
// applies, else the default.
type Options struct {
	// Tracer observes statements. Default: none.
	Tracer pgx.QueryTracer
	// Logger receives errors that are not returned to a caller. Default: nothing is logged.
	Logger *slog.Logger
	// MaxConns bounds the connections of the pool. The notifier and each listener use an additional
	// one. URL: pool_max_conns. Default: 4 per processor of this process, from 8 to 16.
	MaxConns int32
	// ConnectTimeout bounds each attempt to connect. URL: connect_timeout. Default 5s.
	ConnectTimeout time.Duration
	// CallTimeout bounds every call, including the time it waits for a connection or a lock.
	// Default 15s.
	CallTimeout time.Duration
	// BulkTimeout is the CallTimeout of calls that move whole files or histories. Default 60s.
	BulkTimeout time.Duration
	// StatementTimeout bounds one statement at the server, in case this process can no longer
	// cancel it. Migrations are exempt. URL: statement_timeout. Default 15s.
	StatementTimeout time.Duration
	// LockTimeout bounds how long a call waits for a session that another transaction has locked.
	// It exceeds IdleInTransactionTimeout, so that a call outlasts a process that froze inside a
	// transaction. URL: lock_timeout. Default 10s.
	LockTimeout time.Duration
	// IdleInTransactionTimeout bounds how long a process that froze inside a transaction keeps its
	// locks. A live process sends the next statement within milliseconds. URL:
	// idle_in_transaction_session_timeout. Default 5s.
	IdleInTransactionTimeout time.Duration
	// UnansweredTimeout bounds how long a peer may leave TCP segments or keepalives unanswered
	// before the connection counts as broken, on either side. Default 10s.
	UnansweredTimeout time.Duration
	// Sealer seals transcripts and the states of turns before they are stored. Default: data is
	// stored unsealed, and sealed data cannot be read.
	Sealer Sealer
	// Transcripts bounds the transcripts that are stored of a session. Default: 256 MiB per file, 1
	// GiB and 4096 files per session, and 4 GiB of replaced data per turn.
	Transcripts transcript.Limits
	// AllowNewerSchema accepts a schema that a newer program has migrated. Default: SchemaCheck and
	// Ready reject it.
	AllowNewerSchema bool
}

func (o Options) withDefaults(url string) (Options, error) {
	given, err := pgx.ParseConfig(url)
	if err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if _, ok := given.RuntimeParams["pool_max_conns"]; o.MaxConns == 0 && !ok {
		o.MaxConns = defaultConns()
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = cmp.Or(given.ConnectTimeout, 5*time.Second)
	}
	o.Transcripts.FileBytes = cmp.Or(o.Transcripts.FileBytes, transcript.MaxFileBytes)
	o.Transcripts.SessionBytes = cmp.Or(o.Transcripts.SessionBytes, transcript.MaxSessionBytes)
	o.Transcripts.Files = cmp.Or(o.Transcripts.Files, transcript.MaxFiles)
	o.Transcripts.TurnReplaced = cmp.Or(o.Transcripts.TurnReplaced, transcript.MaxReplacedBytes)
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.CallTimeout, 15 * time.Second},
		{&o.BulkTimeout, time.Minute},
		{&o.UnansweredTimeout, 10 * time.Second},
	} {
		*d.value = cmp.Or(*d.value, d.fallback)
	}
	return o, nil
}

// defaultConns returns a pool's default size. Each connection parses and plans every statement for
// itself, again after each vacuum of a table, so connections that the processors cannot keep busy
// cost more than the calls that would wait for one.
func defaultConns() int32 { return int32(min(max(8, 4*runtime.GOMAXPROCS(0)), 16)) }

// DB gives access to all stored data through a connection pool. It is safe for concurrent use. Its
// methods return *failure.Error, never an error of the driver: not found, illegal_state and similar
// codes according to the data, unavailable if Postgres cannot be reached or the call should be
// retried, and internal otherwise.
type DB struct {
	pool     *boundedPool
	conn     *pgx.ConnConfig // for connections outside of the pool
	q        *dbsqlc.Queries
	logger   *slog.Logger
	zip      *zstd.Encoder
	unzip    *zstd.Decoder
	options  Options
	gates    gates               // admit one writer per session
	lockWait *semaphore.Weighted // connections that may wait for locks concurrently
	runs     runKeys
	readers  *notifier
	titles   knownSearchIndex
	prober   prober
}

// Open creates a pool for the database at url, a postgres:// address or a keyword string. It does
// not connect: the first call reports an unreachable Postgres. Open returns an error if the address
// is invalid.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	config, err := pgxpool.ParseConfig(url)
	if err == nil {
		o, err = o.withDefaults(url)
	}
	if err != nil {
		// The driver's message contains the address, including the password.
		return nil, failure.Errorf(failure.Invalid, "the database URL is invalid")
	}
	if o.MaxConns != 0 {
		config.MaxConns = o.MaxConns
	}
	o.MaxConns = config.MaxConns
	config.ConnConfig.ConnectTimeout = o.ConnectTimeout
	config.ConnConfig.DialFunc = rawio.Dial(o.dialer().DialContext)
	config.ConnConfig.Tracer = o.Tracer
	if o.LockTimeout, err = o.serverParams(config.ConnConfig.RuntimeParams); err != nil {
		return nil, err
	}
	pool, err := newBoundedPool(ctx, config, o)
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
		zip: zip, unzip: unzip, options: o,
		lockWait: semaphore.NewWeighted(int64(max(1, o.MaxConns/4))),
		readers:  newNotifier(config.ConnConfig, o.Logger),
	}, nil
}

// MaxConns is the size of the pool.
func (db *DB) MaxConns() int { return int(db.options.MaxConns) }

// serverParams adds the parameters that each connection sets at the server, and returns the
// resulting lock timeout.
func (o Options) serverParams(params map[string]string) (lock time.Duration, err error) {
	setDefault(params, "application_name", "overwinter")
	setDefault(params, "timezone", "UTC")
	params["overwinter.forks"] = "known" // see the trigger runs_of_forks
	// Every statement is short. Compiling it, or starting parallel workers, takes longer than
	// running it, and the planner decides by an estimate that may be far too high.
	setDefault(params, "jit", "off")
	setDefault(params, "max_parallel_workers_per_gather", "0")
	for _, p := range []struct {
		name     string
		given    time.Duration
		fallback time.Duration
	}{
		{"statement_timeout", o.StatementTimeout, 15 * time.Second},
		{"lock_timeout", o.LockTimeout, 10 * time.Second},
		{"idle_in_transaction_session_timeout", o.IdleInTransactionTimeout, 5 * time.Second},
	} {
		if p.given != 0 {
			params[p.name] = milliseconds(p.given)
		}
		setDefault(params, p.name, milliseconds(p.fallback))
	}
	// The server must also detect a client that vanished, since the client's transaction holds
	// locks. These parameters apply to TCP only and are ignored on a Unix socket; the last one ends
	// a statement whose client has disconnected.
	idle, interval := o.keepAlive()
	setDefault(params, "tcp_keepalives_idle", strconv.Itoa(int(idle.Seconds())))
	setDefault(params, "tcp_keepalives_interval", strconv.Itoa(int(interval.Seconds())))
	setDefault(params, "tcp_keepalives_count", strconv.Itoa(keepAliveProbes))
	setDefault(params, "tcp_user_timeout", milliseconds(o.UnansweredTimeout))
	setDefault(params, "client_connection_check_interval", milliseconds(o.UnansweredTimeout/2))
	lock, err = postgresDuration(params["lock_timeout"])
	if err != nil {
		return 0, failure.Errorf(failure.Invalid, "the lock_timeout of the database URL is invalid")
	}
	return lock, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// postgresDuration parses a duration as Postgres does: a number of milliseconds, or a number with a
// unit.
func postgresDuration(text string) (time.Duration, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(ms) * time.Millisecond, nil
	}
	return time.ParseDuration(strings.ReplaceAll(strings.Replace(text, "min", "m", 1), " ", ""))
}

func setDefault(params map[string]string, name, value string) {
	if _, ok := params[name]; !ok {
		params[name] = value
	}
}

// Close waits for calls in progress, and returns when every connection is closed. It may be called
// twice.
func (db *DB) Close() {
	db.prober.close()
	db.readers.close()
	db.pool.Close()
	db.unzip.Close()
}

// Ping reports whether Postgres answers.
func (db *DB) Ping(ctx context.Context) error {
	return fault("ping", db.pool.Ping(ctx))
}

// Installation returns the id of this database's installation: 32 hexadecimal digits, created by
// the first call and constant from then on.
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
