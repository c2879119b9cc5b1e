package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestApproachingDeadlineIsAnnounced checks that the announced time is the one in the session, and
// that nothing is announced unless the session is idle.
func TestApproachingDeadlineIsAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	announce := func(kind deadline.Kind) deadline.Announced {
		t.Helper()
		a, err := b.DeadlineAnnounce(b.ctx, b.id, kind)
		require.NoError(t, err)
		return a
	}
	get := func() session.Session {
		t.Helper()
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		list, _, err := b.SessionList(b.ctx, listing.Filter{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, s.SleepsAt(), list[0].SleepsAt(), "in a list too")
		require.Equal(t, s.ExpiresAt(), list[0].ExpiresAt(), "in a list too")
		return s
	}
	s := get()
	require.Equal(t, s.LastActivity.Add(session.DefaultIdleTimeout), s.SleepsAt())
	before := b.position(t)
	require.Equal(t, deadline.Announced{At: s.SleepsAt(), IdleTimeout: session.DefaultIdleTimeout}, announce(deadline.Sleep), "too early")
	require.Empty(t, b.types(t, before))

	b.sql(t, `UPDATE sessions SET last_activity_at = clock_timestamp() - interval '14 minutes 1 second' WHERE id = $1`, b.id)
	s = get()
	require.Equal(t, deadline.Announced{At: s.SleepsAt(), IdleTimeout: session.DefaultIdleTimeout, Done: true}, announce(deadline.Sleep))
	require.Equal(t, []string{"deadline"}, b.types(t, before))
	log := b.events(t)
	require.JSONEq(t, `{"kind":"sleep","at":"`+resource.Time(s.SleepsAt()).String()+`"}`, string(log[len(log)-1].Data))

	b.sql(t, `UPDATE sessions SET last_activity_at = clock_timestamp() - interval '16 minutes' WHERE id = $1`, b.id)
	require.True(t, announce(deadline.Sleep).Done, "late is better than never: the hibernation follows")

	b.sql(t, `UPDATE sandboxes SET reserved_at = clock_timestamp() - interval '1 hour', deadline = clock_timestamp() + interval '24 minutes' WHERE session_id = $1`, b.id)
	s = get()
	require.WithinDuration(t, time.Now().Add(4*time.Minute), s.ExpiresAt(), 30*time.Second)
	a := announce(deadline.Expiry)
	require.True(t, a.Done)
	require.Equal(t, s.ExpiresAt(), a.At)

	runID := b.begin(t, b.submit(t, "x"))
	require.Zero(t, get().SleepsAt())
	require.Zero(t, announce(deadline.Sleep))
	require.True(t, announce(deadline.Expiry).Done, "in a turn too")
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(session.DefaultIdleTimeout), get().SleepsAt(), 30*time.Second, "the turn has moved it")
}
