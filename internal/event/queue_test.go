package event_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func apply(t *testing.T, q *event.Queue, data string) {
	t.Helper()
	var d event.QueueData
	require.NoError(t, json.Unmarshal([]byte(data), &d))
	q.Apply(d)
}

func TestQueueEventOfEarlierVersionIsWholeQueue(t *testing.T) {
	t.Parallel()
	var q event.Queue
	apply(t, &q, `{"items":[{"promptId":"a","ordinal":1,"status":"processing"},{"promptId":"b","ordinal":2,"status":"queued"}]}`)
	require.Len(t, q.Items(), 2)
	apply(t, &q, `{"changes":[{"change":"removed","promptId":"a","ordinal":1,"status":"completed"}],"items":[{"promptId":"b","ordinal":2,"status":"queued"}],"queued":1,"processing":0}`)
	require.Equal(t, []event.QueueItem{{PromptID: "b", Ordinal: 2, Status: session.PromptQueued}}, q.Items())
	apply(t, &q, `{"items":[]}`)
	require.Empty(t, q.Items())
}

func TestReturnedPromptKeepsPosition(t *testing.T) {
	t.Parallel()
	var q event.Queue
	for _, change := range []string{
		`{"change":"added","promptId":"b","ordinal":2,"status":"queued"}`,
		`{"change":"added","promptId":"c","ordinal":3,"status":"queued"}`,
		`{"change":"added","promptId":"a","ordinal":1,"status":"queued"}`,
		`{"change":"updated","promptId":"a","ordinal":1,"status":"processing"}`,
		`{"change":"removed","promptId":"c","ordinal":3,"status":"cancelled"}`,
		`{"change":"removed","promptId":"z","ordinal":9,"status":"cancelled"}`,
	} {
		apply(t, &q, `{"changes":[`+change+`],"items":[],"queued":7,"processing":0}`)
	}
	require.Equal(t, []event.QueueItem{
		{PromptID: "a", Ordinal: 1, Status: session.PromptProcessing}, {PromptID: "b", Ordinal: 2, Status: session.PromptQueued},
	}, q.Items())
}
