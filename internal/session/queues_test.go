package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestQueuesHaveTheInstallationInTheirNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, session.Queues{Control: "overwinter-control-0a", Turns: "overwinter-turns-0a"}, session.QueuesOf("0a"))
	require.Equal(t, session.Queues{Control: "overwinter-control", Turns: "overwinter-turns"}, session.QueuesOf(""), "as recorded workflows have them")
	require.Equal(t, "overwinter-reconcile", session.ScheduleOf(""))
	require.NotEqual(t, session.ScheduleOf("0a"), session.ScheduleOf("0b"))
	for _, id := range []string{"", "0a"} {
		require.Equal(t, session.QueuesOf(id), session.QueuesAt(session.QueuesOf(id).Control))
	}
	require.Equal(t, session.QueuesOf(""), session.QueuesAt("elsewhere"))
	require.Equal(t, session.QueuesOf(""), session.QueuesAt("overwinter-controls"))
}
