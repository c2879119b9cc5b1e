package oldrollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/oldrollout"
)

func TestIsDistinguishesForms(t *testing.T) {
	t.Parallel()
	require.True(t, oldrollout.Is([]byte(`{"type":"session_meta","payload":{"id":"t"}}`)))
	require.False(t, oldrollout.Is([]byte(`{"type":"session_meta","payload":{"id":"t","history_mode":"paginated"}}`)))
	require.False(t, oldrollout.Is([]byte(`{"type":"event_msg","payload":{"type":"item_completed"}}`)))
}

func TestFileWithoutThreadIsEmpty(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "no json\n", `{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}}`} {
		require.Zero(t, oldrollout.Read([]byte(data)), data)
	}
}

func TestUnendedCallHasNoResult(t *testing.T) {
	t.Parallel()
	r := oldrollout.Read([]byte(`{"timestamp":"2025-09-01T10:00:00.000Z","type":"session_meta","payload":{"id":"t","cwd":"/w"}}
{"timestamp":"2025-09-01T10:00:01.000Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{}","call_id":"a"}}
{"timestamp":"2025-09-01T10:00:02.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"b","output":"of another call"}}
{"timestamp":"2025-09-01T10:00:03.000Z","type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}
{"timestamp":"2025-09-01T10:00:04.000Z","type":"session_meta","payload":{"id":"of the thread it was forked from"}}
`))
	require.Equal(t, "t", r.Thread)
	require.Equal(t, "/w", r.Dir)
	require.Len(t, r.Steps, 2)
	require.Equal(t, oldrollout.Begun, r.Steps[0].Kind)
	require.Equal(t, "a", r.Steps[0].Item.ID)
	require.Equal(t, oldrollout.Aborted, r.Steps[1].Kind)
	require.Equal(t, codexformat.Interrupted, r.Steps[1].End.Status)
	require.EqualValues(t, 2000, r.Steps[1].At-r.Steps[0].At)
}
