package postgrestest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// New returns the test's own database, migrated and empty, and drops it when the test ends. If
// Postgres is not installed, the test fails with a message that names the package to install.
func New(t testing.TB) *postgres.DB {
	t.Helper()
	return Open(t, URL(t))
}

// Open opens a database, which the test may have open already, and closes it when the test ends.
func Open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, postgres.Options{
		Logger: slog.New(slog.DiscardHandler), MaxConns: 8, ConnectTimeout: startTimeout,
		// The tests of all packages share the machine: no test may fail because it is slow.
		CallTimeout: startTimeout, BulkTimeout: startTimeout, StatementTimeout: startTimeout,
		LockTimeout: startTimeout, IdleInTransactionTimeout: startTimeout,
	})
	if err != nil {
		t.Fatalf("open the test's database: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// URL returns the address of the test's own database, migrated and empty, and drops it when the
// test ends.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, template)
}

// EmptyURL is URL without a schema.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, "template0")
}

func create(t testing.TB, from string) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name, err := s.createDatabase(t.Context(), from)
	if err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := s.dropDatabase(ctx, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.url(name)
}
