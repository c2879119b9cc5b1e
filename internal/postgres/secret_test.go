package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSecretsAreReplacedListedAndDeleted(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	ctx := t.Context()

	_, err := db.SecretSealed(ctx, "A")
	require.Equal(t, failure.NoSecret, failure.CodeOf(err))
	first, created, err := db.SecretPut(ctx, "B", []byte{0, 1, 2})
	require.NoError(t, err)
	require.True(t, created)
	_, _, err = db.SecretPut(ctx, "A", []byte("a"))
	require.NoError(t, err)
	again, created, err := db.SecretPut(ctx, "B", []byte{3})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, first.CreatedAt, again.CreatedAt)
	require.False(t, again.UpdatedAt.Before(first.UpdatedAt))

	present, err := db.SecretsPresent(ctx, []string{"C", "B"})
	require.NoError(t, err)
	require.Equal(t, []string{"B"}, present)
	sess, _, err := db.SessionCreate(ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	agent, profile, present, err := db.SessionNeeds(ctx, sess.ID, []string{"C", "B"})
	require.NoError(t, err)
	require.Equal(t, []string{"demo", "", "B"}, append([]string{agent, profile}, present...))
	_, _, _, err = db.SessionNeeds(ctx, session.NewID(session.SessionPrefix), nil)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))

	sealed, err := db.SecretSealed(ctx, "B")
	require.NoError(t, err)
	require.Equal(t, []byte{3}, sealed)
	list, err := db.SecretsList(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"A", "B"}, []string{list[0].Name, list[1].Name})

	require.Empty(t, list[0].Hosts)
	bound, _, err := db.SecretPut(ctx, "A", []byte("b"), "api.example.com", "127.0.0.1:8901")
	require.NoError(t, err)
	require.Equal(t, []string{"api.example.com", "127.0.0.1:8901"}, bound.Hosts)
	all, err := db.SecretsSealed(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]postgres.SealedSecret{"A": {Sealed: []byte("b"), Hosts: bound.Hosts}, "B": {Sealed: []byte{3}, Hosts: []string{}}}, all)
	bound, _, err = db.SecretPut(ctx, "A", []byte("c"))
	require.NoError(t, err)
	require.Empty(t, bound.Hosts, "hosts belong to the value that they were stored with")

	require.NoError(t, db.SecretDelete(ctx, "A"))
	require.Equal(t, failure.NoSecret, failure.CodeOf(db.SecretDelete(ctx, "A")))
}

// Replaced and deleted values stay masked, so they are kept, within bounds.
func TestReplacedSecretsAreKeptWithinBounds(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	ctx := t.Context()
	marks := map[string]bool{}
	for i := range secret.MaxReplacedValues + 3 {
		_, _, err := db.SecretPut(ctx, "A", []byte{byte(i)})
		require.NoError(t, err)
		mark, err := db.SecretsMark(ctx)
		require.NoError(t, err)
		require.False(t, marks[mark], "the mark changes with every value")
		marks[mark] = true
	}
	_, _, err := db.SecretPut(ctx, "B", []byte("b"))
	require.NoError(t, err)
	require.NoError(t, db.SecretDelete(ctx, "A"))
	require.NoError(t, db.SecretDelete(ctx, "B"))
	replaced, err := db.SecretsReplaced(ctx)
	require.NoError(t, err)
	require.Len(t, replaced, secret.MaxReplacedValues+1)
	require.Equal(t, []byte{3}, replaced[0].Sealed, "the oldest are dropped")
	require.Equal(t, []byte{secret.MaxReplacedValues + 2}, replaced[len(replaced)-2].Sealed)
	require.Equal(t, []byte("b"), replaced[len(replaced)-1].Sealed)
	mark, err := db.SecretsMark(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, mark, "a process that starts now masks them too")
}

// TestMarkTellsRowsOfOneTransactionApart checks this because a restored database may have a transaction with
// the number of another one.
func TestMarkTellsRowsOfOneTransactionApart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, postgrestest.URL(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	marks := map[string]bool{}
	for i := range 3 {
		_, err := tx.Exec(ctx, `INSERT INTO secrets (name, sealed, updated_at) VALUES ('A', '', now() + make_interval(secs => $1))
			ON CONFLICT (name) DO UPDATE SET updated_at = excluded.updated_at`, i)
		require.NoError(t, err)
		mark, err := dbsqlc.New().SecretsMark(ctx, tx)
		require.NoError(t, err)
		marks[mark] = true
	}
	require.Len(t, marks, 3)
}
