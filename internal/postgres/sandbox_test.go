package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestAGenerationIsReservedBeforeItsSandboxIsMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	requireCode(t, session.CodeIllegalState, b.SandboxRecord(b.ctx, b.id, 0, "sb", session.SandboxStarting, time.Now()))
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-1"), "twice is once")
	rows, err := b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Empty(t, rows[0].SandboxID)
	require.True(t, rows[0].Current)
	require.True(t, rows[0].Deadline.IsZero())
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, s.Sandbox, "an intent is not a sandbox")

	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, 1, "sb-1", session.SandboxStarting, deadline))
	rows, err = b.SandboxesOpen(b.ctx, "")
	require.NoError(t, err)
	require.True(t, rows[0].ReadyAt.IsZero())
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, 1, "sb-1", session.SandboxReady, deadline))
	rows, err = b.SandboxesOpen(b.ctx, "")
	require.NoError(t, err)
	require.False(t, rows[0].ReadyAt.IsZero())
	require.Equal(t, deadline, rows[0].Deadline)
	require.NoError(t, b.SandboxSeen(b.ctx, b.id, 1, session.SandboxUnhealthy))
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.SandboxUnhealthy, s.Sandbox.Status)

	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
	requireCode(t, session.CodeIllegalState, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	requireCode(t, session.CodeIllegalState, b.SandboxRecord(b.ctx, b.id, 1, "sb-late", session.SandboxReady, deadline))
	rows, err = b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []bool{false, true}, []bool{rows[0].Current, rows[1].Current})
	require.Equal(t, "sb-1", rows[0].SandboxID)

	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "lost"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "again"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 7, "never was"))
	require.NoError(t, b.SandboxSeen(b.ctx, b.id, 1, session.SandboxReady), "of one that has ended nothing changes")
	rows, err = b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 2, "lost"))
	requireCode(t, session.CodeIllegalState, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
	requireCode(t, session.CodeIllegalState, b.SandboxRecord(b.ctx, b.id, 2, "sb-2", session.SandboxReady, deadline))
	requireCode(t, session.CodeNoSession, b.GenerationReserve(b.ctx, "ses_nobody", 1, "im-1"))
}
