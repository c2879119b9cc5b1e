package deadline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestNoticeOfDeadlinesFitsThem(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Minute, deadline.SleepNotice(session.DefaultIdleTimeout))
	require.Equal(t, 250*time.Millisecond, deadline.SleepNotice(session.MinIdleTimeout))
	require.Equal(t, 5*time.Minute, deadline.ExpiryNotice(deadline.MaxMoveMargin))
	require.Equal(t, 15*time.Second, deadline.ExpiryNotice(time.Minute))
}
