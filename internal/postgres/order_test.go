package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// The signal of an earlier prompt may be lost or delayed, but not its place.
func TestPromptIsNotClaimedBeforeEarlierOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.submit(t, "1"), b.submit(t, "2")
	before := b.position(t)
	v, err := b.RunBegin(b.ctx, b.id, second, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.False(t, v.Granted)
	require.Equal(t, &session.QueuedPrompt{ID: first, Ordinal: 1}, v.Earlier)
	require.Equal(t, before, b.position(t), "nothing has happened")

	v, err = b.RunBegin(b.ctx, b.id, first, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.True(t, v.Granted)
}
