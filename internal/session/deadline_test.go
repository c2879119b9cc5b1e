package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestNoticeOfDeadlinesFitsThem(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Minute, session.SleepNotice(session.DefaultIdleTimeout))
	require.Equal(t, 250*time.Millisecond, session.SleepNotice(session.MinIdleTimeout))
	require.Equal(t, 5*time.Minute, session.ExpiryNotice(session.MaxMoveMargin))
	require.Equal(t, 15*time.Second, session.ExpiryNotice(time.Minute))
}
