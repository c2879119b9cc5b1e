package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
)

// databaseFlags configure the address of Postgres and the time limits of calls.
type databaseFlags struct {
	DatabaseURL string `env:"OVERWINTER_DATABASE_URL" required:"" placeholder:"URL" help:"URL of Postgres: postgres://user:password@host:port/database."`

	MaxConns                 int32         `name:"database-max-conns" env:"OVERWINTER_DATABASE_MAX_CONNS" placeholder:"N" help:"Connections in the pool, from 2 to 1000. Default: pool_max_conns of the URL, else 4 per processor, from 8 to 16."`
	ConnectTimeout           time.Duration `name:"database-connect-timeout" env:"OVERWINTER_DATABASE_CONNECT_TIMEOUT" placeholder:"DURATION" help:"Limit for connecting. Default: connect_timeout of the URL, else 5s."`
	CallTimeout              time.Duration `name:"database-call-timeout" env:"OVERWINTER_DATABASE_CALL_TIMEOUT" default:"15s" placeholder:"DURATION" help:"Limit for a call, including waits for a connection or a lock. Default ${default}."`
	BulkTimeout              time.Duration `name:"database-bulk-timeout" env:"OVERWINTER_DATABASE_BULK_TIMEOUT" default:"1m" placeholder:"DURATION" help:"Limit for a call that moves whole files or histories. Default ${default}."`
	StatementTimeout         time.Duration `name:"database-statement-timeout" env:"OVERWINTER_DATABASE_STATEMENT_TIMEOUT" placeholder:"DURATION" help:"Limit for one statement, enforced by the server. Default: statement_timeout of the URL, else 15s."`
	LockTimeout              time.Duration `name:"database-lock-timeout" env:"OVERWINTER_DATABASE_LOCK_TIMEOUT" placeholder:"DURATION" help:"Limit for waiting for a session that another transaction has locked. Default: lock_timeout of the URL, else 10s."`
	IdleInTransactionTimeout time.Duration `name:"database-idle-in-transaction-timeout" env:"OVERWINTER_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT" placeholder:"DURATION" help:"How long a process that froze inside a transaction keeps its locks. Default: idle_in_transaction_session_timeout of the URL, else 5s."`
	AllowNewerSchema         bool          `name:"database-allow-newer-schema" env:"OVERWINTER_DATABASE_ALLOW_NEWER_SCHEMA" help:"Accept a schema that a newer release has migrated; only if its release notes allow this release. Default: refuse it."`
	UnansweredTimeout        time.Duration `name:"database-unanswered-timeout" env:"OVERWINTER_DATABASE_UNANSWERED_TIMEOUT" default:"10s" placeholder:"DURATION" help:"Time without an answer to TCP data or keepalives after which a connection counts as broken. Default ${default}."`
}

// check rejects invalid values and combinations.
func (f databaseFlags) check() error {
	if f.MaxConns != 0 && f.MaxConns < 2 || f.MaxConns > 1000 {
		return fmt.Errorf("--database-max-conns is %d; it must be from 2 to 1000", f.MaxConns)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"connect", f.ConnectTimeout, 100 * time.Millisecond},
		{"call", f.CallTimeout, time.Second},
		{"bulk", f.BulkTimeout, f.CallTimeout},
		{"statement", f.StatementTimeout, 100 * time.Millisecond},
		{"lock", f.LockTimeout, 100 * time.Millisecond},
		{"idle-in-transaction", f.IdleInTransactionTimeout, 100 * time.Millisecond},
		{"unanswered", f.UnansweredTimeout, 5 * time.Second},
	} {
		if d.value != 0 && d.value < d.least {
			return fmt.Errorf("--database-%s-timeout is %s; it must be at least %s", d.name, d.value, d.least)
		}
	}
	return nil
}

func (f databaseFlags) open(ctx context.Context, logger *slog.Logger) (*postgres.DB, error) {
	return f.openSealed(ctx, logger, nil)
}

// openSealed opens a database with encrypted transcripts; keyring may be nil.
func (f databaseFlags) openSealed(ctx context.Context, logger *slog.Logger, keyring *secret.Keyring) (*postgres.DB, error) {
	if err := f.check(); err != nil {
		return nil, usageError{err.Error()}
	}
	options := postgres.Options{
		Logger: logger, MaxConns: f.MaxConns, ConnectTimeout: f.ConnectTimeout, CallTimeout: f.CallTimeout,
		BulkTimeout: f.BulkTimeout, StatementTimeout: f.StatementTimeout, LockTimeout: f.LockTimeout,
		IdleInTransactionTimeout: f.IdleInTransactionTimeout, UnansweredTimeout: f.UnansweredTimeout,
		AllowNewerSchema: f.AllowNewerSchema,
	}
	if keyring != nil {
		options.Sealer = keyring
	}
	if tracingWanted() {
		options.Tracer = otelpgx.NewTracer()
	}
	return postgres.Open(ctx, f.DatabaseURL, options)
}

// schemaRefused reports a permanent mismatch of the schema.
func schemaRefused(err error) bool { return failure.CodeOf(err) == failure.IllegalState }

// awaitSchema returns when the database responds and has the schema of this program, or with a
// permanent error.
func awaitSchema(ctx context.Context, db *postgres.DB, logger *slog.Logger) error {
	return backoff.Retry(ctx, startupPauses(), func(ctx context.Context) error {
		err := db.SchemaCheck(ctx)
		if err == nil || schemaRefused(err) {
			return err
		}
		logger.WarnContext(ctx, "waiting for Postgres, which does not respond", slog.Any("error", err))
		return retry.RetryableError(err)
	})
}

// startupPauses are the pauses between a starting process's attempts to reach its dependencies.
func startupPauses() retry.Backoff { return backoff.New(100*time.Millisecond, 5*time.Second) }

// awaitInstallation returns the id of the installation once the database is available and has the
// right schema.
func awaitInstallation(ctx context.Context, db *postgres.DB, logger *slog.Logger) (string, error) {
	for {
		if err := awaitSchema(ctx, db, logger); err != nil {
			return "", err
		}
		id, err := db.Installation(ctx)
		if err == nil || failure.CodeOf(err) != failure.Unavailable {
			return id, err
		}
	}
}

// installationQueue returns the task queue of the installation's workflows. It asks Postgres for
// the installation until Postgres has answered once.
func installationQueue(db *postgres.DB) sessionclient.Queue {
	var known atomic.Pointer[string]
	return func(ctx context.Context) (string, error) {
		if queue := known.Load(); queue != nil {
			return *queue, nil
		}
		id, err := db.Installation(ctx)
		if err != nil {
			return "", err
		}
		queue := contract.QueuesOf(id).Control
		known.Store(&queue)
		return queue, nil
	}
}

// secretFlags hold the key of the installation.
type secretFlags struct {
	SecretKey secret.Value `env:"OVERWINTER_SECRET_KEY" required:"" placeholder:"BASE64" help:"Key of this installation: 32 bytes in base64, the same for every worker."`
	previousKeys
}

// previousKeys are other keys of the installation, while its key is being replaced.
type previousKeys struct {
	SecretKeyPrevious []secret.Value `env:"OVERWINTER_SECRET_KEY_PREVIOUS" sep:"," placeholder:"BASE64" help:"Previous keys, separated by commas, to decrypt data that is not re-encrypted yet: see 'overwinter secret rotate'. Default: none."`
}

func (f secretFlags) keyring() (*secret.Keyring, error) {
	return newKeyring(f.SecretKey, f.SecretKeyPrevious)
}

func decodeKey(variable, text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, usageError{variable + " is not base64"}
	}
	if len(key) != secret.KeyBytes {
		return nil, usageError{fmt.Sprintf("%s holds %d bytes; it must hold %d", variable, len(key), secret.KeyBytes)}
	}
	return key, nil
}

// newKeyring returns a keyring that encrypts with the current key of the installation and decrypts
// with all of them.
func newKeyring(current secret.Value, previous []secret.Value) (*secret.Keyring, error) {
	key, err := decodeKey("OVERWINTER_SECRET_KEY", current.Reveal())
	if err != nil {
		return nil, err
	}
	var others [][]byte
	for _, value := range previous {
		text := strings.TrimSpace(value.Reveal())
		if text == "" {
			continue
		}
		other, err := decodeKey("OVERWINTER_SECRET_KEY_PREVIOUS", text)
		if err != nil {
			return nil, err
		}
		others = append(others, other)
	}
	return secret.NewKeyring(key, others...)
}

// runnerBinary finds the program that runs in sandboxes: the given path, or the program next to
// this one.
func runnerBinary(given string) (string, error) {
	if given == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		given = filepath.Join(filepath.Dir(self), "overwinter-runner")
	}
	if _, err := os.Stat(given); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s does not exist: run make build, or set --runner-binary", given)
	} else if err != nil {
		return "", fmt.Errorf("look for the runner: %w", err)
	}
	return given, nil
}
