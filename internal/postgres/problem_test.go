package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestAProblemIsInTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.ProblemTell(t.Context(), b.id, session.ProblemSyncFailed, "the disk\x00 is full"))
	events := b.events(t)
	last := events[len(events)-1]
	require.Equal(t, "error", last.Type)
	require.JSONEq(t, `{"code":"sync_failed","message":"the disk� is full"}`, string(last.Data))
	requireCode(t, session.CodeNoSession, b.ProblemTell(t.Context(), "ses_none", "x", "y"))
}

func TestTheProgressOfASetupIsInTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.SetupRecord(t.Context(), b.id, "clone", "started"))
	events := b.events(t)
	last := events[len(events)-1]
	require.Equal(t, "setup", last.Type)
	require.JSONEq(t, `{"stage":"clone","status":"started"}`, string(last.Data))
	requireCode(t, session.CodeNoSession, b.SetupRecord(t.Context(), "ses_none", "clone", "started"))
}
