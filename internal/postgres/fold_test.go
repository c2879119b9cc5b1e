package postgres

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

func delta(data string) eventlog.Draft {
	return eventlog.Draft{Type: string(conversation.EventTextDelta), ConversationID: "main", Data: json.RawMessage(data)}
}

func TestDeltaIsReadWithoutDecodingIt(t *testing.T) { //nolint:paralleltest // it counts allocations
	encoded, err := conversation.Encode(conversation.TextDelta{BlockID: "block-1", Delta: "a word, ein Wört <b>"})
	require.NoError(t, err)
	d := delta(string(encoded))
	draft, ok := readFoldDraft("ses_1", d)
	require.True(t, ok)
	require.Equal(t, foldDraft{key: blockKey{"ses_1", "main", "block-1"}, data: foldData{BlockID: "block-1"}, plain: true}, draft)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { readFoldDraft("ses_1", d) }), 1.0, "allocations: the id of the block")
}

func TestDeltaWithEscapesIsDecoded(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"blockId":"a\u0062","delta":"x"}`, `{"blockId":"ab","delta":"\n"}`, `{"delta":"x","blockId":"ab"}`, ` {"blockId":"ab","delta":"x"}`,
		`{"blockId":"xy","delta":"x","blockId":"ab"}`, `{"blockId":"ab"}`, "{\"blockId\":\"ab\",\"delta\":\"\xff\"}",
	} {
		draft, ok := readFoldDraft("ses_1", delta(data))
		require.True(t, ok, data)
		require.Equal(t, blockKey{"ses_1", "main", "ab"}, draft.key, data)
		require.False(t, draft.plain, data)
	}
	for _, data := range []string{"{\"blockId\":\"ab\",\"delta\":\"\n\"}", `{"blockId":"ab","delta":"x`, `{"blockId":"ab","delta":"x""}`, `"}`, ``} {
		_, ok := readFoldDraft("ses_1", delta(data))
		require.False(t, ok, data)
	}
}

// FuzzPlainDelta compares the result of plainDelta with that of a decoder.
func FuzzPlainDelta(f *testing.F) {
	f.Add(`{"blockId":"ab","delta":"x"}`)
	f.Add(`{"blockId":"","delta":""}`)
	f.Add(`{"blockId":"ab","delta":"x","delta":"y"}`)
	f.Fuzz(func(t *testing.T, data string) {
		id, ok := plainDelta(delta(data))
		if !ok {
			return
		}
		var want conversation.TextDelta
		require.NoError(t, json.Unmarshal([]byte(data), &want))
		require.Equal(t, want.BlockID, id)
		require.Equal(t, data, string(storable(json.RawMessage(data))))
	})
}
