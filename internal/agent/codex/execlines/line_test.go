package execlines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/execlines"
)

func read(t *testing.T, line string) execlines.Line {
	t.Helper()
	l, ok := execlines.Read([]byte(line))
	require.True(t, ok, line)
	return l
}

func TestAppServerLinesAreRejected(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "no json", `{"type":"unknown"}`, `{"type":"error","id":1}`, `{"type":"error","method":"error"}`,
		`{"method":"item/started","params":{"item":{"type":"agentMessage","id":"a"}}}`,
	} {
		_, ok := execlines.Read([]byte(line))
		require.False(t, ok, line)
	}
}

func TestItemsOfTwoProcessesHaveDifferentIDs(t *testing.T) {
	t.Parallel()
	begun := read(t, `{"type":"thread.started","thread_id":"t"}`)
	line := read(t, `{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"a"}}`)
	first, ok := line.Item(begun.Prefix(time.UnixMilli(1)))
	require.True(t, ok)
	second, _ := line.Item(begun.Prefix(time.UnixMilli(2)))
	require.Equal(t, "t/1/item_0", first.ID)
	require.NotEqual(t, first.ID, second.ID)
}

func TestTurnOutcomes(t *testing.T) {
	t.Parallel()
	require.Equal(t, codexformat.Completed, read(t, `{"type":"turn.completed"}`).Verdict().Status)
	failed := read(t, `{"type":"turn.failed","error":{"message":"no quota"}}`).Verdict()
	require.Equal(t, codexformat.Failed, failed.Status)
	require.Equal(t, "no quota", failed.Message)
	require.True(t, read(t, `{"type":"error","message":"Reconnecting... 1/5"}`).Retries())
	require.False(t, read(t, `{"type":"error","message":"no quota"}`).Retries())
}
