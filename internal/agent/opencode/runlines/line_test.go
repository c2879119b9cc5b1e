package runlines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/runlines"
)

var frame = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func TestLineHasPartOrError(t *testing.T) {
	t.Parallel()
	l, ok := runlines.Read([]byte(`{"type":"text","timestamp":1795262646461,"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_1","type":"text","text":"a"}}`), frame)
	require.True(t, ok)
	require.Equal(t, "ses_1", l.SessionID)
	require.Equal(t, "prt_1", l.Part.ID)
	require.EqualValues(t, 1795262646461, l.At.UnixMilli())

	l, ok = runlines.Read([]byte(`{"type":"error","sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no such model"}}}`), frame)
	require.True(t, ok)
	require.Equal(t, "no such model", l.Error.Words())
	require.Equal(t, frame, l.At, "the line has no time")
}

func TestOtherLinesAreRejected(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "no json", "[]", `{"type":"text","sessionID":"ses_1"}`,
		`{"type":"text","part":{"id":"prt_1","messageID":"msg_1"}}`,
		`{"type":"text","sessionID":"ses_1","part":{"id":"prt_1"}}`,
		`{"type":"text","sessionID":"ses_1","part":{"messageID":"msg_1"}}`,
	} {
		_, ok := runlines.Read([]byte(line), frame)
		require.False(t, ok, line)
	}
}
