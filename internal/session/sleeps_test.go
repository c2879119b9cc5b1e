package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSessionKnowsItsDeadlines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	idle := session.Session{
		Status: session.Running, LastActivity: at, IdleTimeout: 15 * time.Minute,
		Sandbox: &session.SandboxView{Since: at.Add(-time.Hour), Deadline: at.Add(23 * time.Hour)},
	}
	require.Equal(t, at.Add(15*time.Minute), idle.SleepsAt())
	require.Equal(t, at.Add(23*time.Hour-20*time.Minute), idle.ExpiresAt())

	short := idle
	short.Sandbox = &session.SandboxView{Since: at, Deadline: at.Add(10 * time.Minute)}
	require.Equal(t, at.Add(5*time.Minute), short.ExpiresAt(), "half of a short life")

	working, waiting := idle, idle
	working.Queue.Processing, waiting.Queue.Queued = 1, 1
	require.Zero(t, working.SleepsAt())
	require.Zero(t, waiting.SleepsAt())
	require.NotZero(t, working.ExpiresAt(), "a turn does not keep a sandbox alive")

	endless := idle
	endless.Sandbox = &session.SandboxView{}
	require.Zero(t, endless.ExpiresAt())
	for _, state := range session.States {
		s := idle
		if s.Status = state; state != session.Running {
			require.Zero(t, s.SleepsAt(), state)
			require.Zero(t, s.ExpiresAt(), state)
		}
	}
}

func TestNextCheckpointIsAnnouncedWhileSessionRuns(t *testing.T) {
	t.Parallel()
	at := time.Now()
	s := session.Session{Status: session.Running, CreatedAt: at, Saves: checkpoint.Saves{Policy: "10m0s", Newest: at.Add(time.Hour)}}
	require.Equal(t, at.Add(70*time.Minute), s.CheckpointAt())
	for _, policy := range []checkpoint.Policy{"", checkpoint.Hibernate, checkpoint.Turn} {
		s.Saves.Policy = policy
		require.Zero(t, s.CheckpointAt(), policy)
	}
	require.Zero(t, session.Session{Status: session.Running, Saves: checkpoint.Saves{Policy: "10m0s"}}.CheckpointAt(), "the first turn saves one")
	require.Zero(t, session.Session{Status: session.Hibernated, Saves: checkpoint.Saves{Policy: "10m0s", Newest: at}}.CheckpointAt(), "it sleeps")
}
