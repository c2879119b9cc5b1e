package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPagesOfPromptsAreBoundedInBytes lists prompts of the maximum size: every page ends at 1 MiB
// and the pages contain all prompts.
func TestPagesOfPromptsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	content := strings.Repeat("x", session.MaxPromptBytes)
	var want, got []string
	for range 11 {
		want = append(want, b.submit(t, content))
	}
	pages := 0
	for cursor := ""; ; pages++ {
		items, next, err := b.PromptList(b.ctx, b.id, 200, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(items), 4)
		for _, p := range items {
			require.Equal(t, content, p.Content)
			got = append(got, p.ID)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, 2, pages)
	require.Equal(t, want, got)
	items, next, err := b.PromptList(b.ctx, b.id, 3, "")
	require.NoError(t, err)
	require.Len(t, items, 3)
	require.NotEmpty(t, next)
}

// TestPagesOfQuestionsAreBoundedInBytes does the same with questions about large inputs.
func TestPagesOfQuestionsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	input, err := json.Marshal(strings.Repeat("x", 300<<10))
	require.NoError(t, err)
	for i := range 7 {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: int64(i),
			Questions: []eventlog.Question{{Frame: int64(i), Asked: question.Asked{ID: fmt.Sprint(i), Kind: question.Permission, ToolName: "x", Input: input}}},
		}))
	}
	seen := 0
	for cursor := ""; ; {
		items, next, err := b.QuestionList(b.ctx, b.id, "", 200, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(items), 4)
		for _, q := range items {
			seen++
			require.Equal(t, fmt.Sprint(7-seen), q.Asked.ID)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, 7, seen)
}
