package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestNoticesStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"ses_a,ses_b"}, notices([]string{"ses_a", "ses_b"}))
	for _, n := range []int{1, 212, 213, 214, 500, 840, 5000} {
		var ids []string
		for range n {
			ids = append(ids, session.NewID(session.SessionPrefix))
		}
		payloads := notices(ids)
		require.LessOrEqual(t, len(payloads), maxNotices)
		for _, p := range payloads {
			require.Less(t, len(p), 8000)
		}
		if joined := strings.Join(payloads, ","); joined != everySession {
			require.Equal(t, strings.Join(ids, ","), joined)
		}
	}
}
