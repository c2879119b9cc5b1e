package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSecretsAreReplacedListedAndDeleted(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	ctx := t.Context()

	_, err := db.SecretSealed(ctx, "A")
	require.Equal(t, session.CodeNoSecret, session.CodeOf(err))
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

	sealed, err := db.SecretSealed(ctx, "B")
	require.NoError(t, err)
	require.Equal(t, []byte{3}, sealed)
	list, err := db.SecretsList(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"A", "B"}, []string{list[0].Name, list[1].Name})

	require.NoError(t, db.SecretDelete(ctx, "A"))
	require.Equal(t, session.CodeNoSecret, session.CodeOf(db.SecretDelete(ctx, "A")))
}
