package event_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

func TestAppendEventHeadMatchesMarshal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := eventlog.Event{
			Seq: rapid.Int64Min(1).Draw(t, "seq"), Type: rapid.String().Draw(t, "type"), SessionID: rapid.String().Draw(t, "session"),
			ConversationID: rapid.String().Draw(t, "conversation"), RunID: rapid.String().Draw(t, "run"),
			At: time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "at")), Data: json.RawMessage(`{"a":[1,"<&>"]}`),
		}
		want, err := json.Marshal(event.FromLog(e))
		require.NoError(t, err)
		got := append(append(event.AppendHead([]byte("x"), &e), e.Data...), '}')
		require.JSONEq(t, string(want), string(got[1:]))
		require.NotContains(t, string(got), "\n")
	})
}
