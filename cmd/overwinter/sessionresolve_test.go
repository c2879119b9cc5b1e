package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptsOfUnknownOutcomeAreResolved(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running)
	run1 := session.NewID(session.RunPrefix)
	store.With(id, func(r *apitest.Row) {
		for _, prompt := range []string{"retried", "happened", "dismissed"} {
			r.Prompts = append(r.Prompts, session.Prompt{ID: prompt, SessionID: id, Status: session.PromptUnknown, RunID: run1})
		}
	})
	do := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}
	r := do("retry", id, "retried")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "retried  queued\n", r.stdout)
	r = do("resolve", id, "happened", "completed", "--note=seen in the log")
	require.Equal(t, "happened  completed (resolved)\n", r.stdout)
	r = do("dismiss", id, "dismissed", "-o", "json")
	require.Contains(t, r.stdout, `"reason": "dismissed"`)
	r = do("resolve", id, "dismissed", "failed")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "prompt dismissed is cancelled; only one that is unknown can be")
	require.Equal(t, exitUsage, do("resolve", id, "dismissed", "lost").code)
}
