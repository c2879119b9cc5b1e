package postgrestest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// New returns a database of the test's own, migrated and empty, and drops it when
// the test ends. Without Postgres the test fails and says what to install.
func New(t testing.TB) *postgres.DB {
	t.Helper()
	return Open(t, URL(t))
}

// Open opens a database, which may be one that the test has open already, until
// the test ends.
func Open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, postgres.Options{
		Logger: slog.New(slog.DiscardHandler), MaxConns: 8, ConnectTimeout: startTimeout,
		// All packages' tests share the machine: no test fails because it was slow.
		CallTimeout: startTimeout, BulkTimeout: startTimeout, StatementTimeout: startTimeout,
		LockTimeout: startTimeout, IdleInTransactionTimeout: startTimeout,
	})
	if err != nil {
		t.Fatalf("open the test's database: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// URL returns the address of a migrated and empty database of the test's own and
// drops it when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, template)
}

// EmptyURL is URL without any schema.
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
