package postgrestest

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// FileURL is EmptyURL after executing the statements of a file, such as a dump of a database of an
// earlier release.
func FileURL(t testing.TB, path string) string {
	t.Helper()
	statements, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read the statements: %v", err)
	}
	url := EmptyURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to the test's database: %v", err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.PgConn().Exec(t.Context(), string(statements)).ReadAll(); err != nil {
		t.Fatalf("run the statements of %s: %v", path, err)
	}
	return url
}
