package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (b *harness) collectPrompt(id, promptID string) answer {
	b.t.Helper()
	return b.do("POST", "/api/sessions/"+id+"/prompts", fmt.Sprintf(`{"id":%q,"content":"hello","mode":"collect"}`, promptID))
}

// TestCollectedPromptsAreSignalledAtDeadline checks that there is one signal, regardless of the
// number of prompts.
func TestCollectedPromptsAreSignalledAtDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.CollectWindow = 3 * time.Second })
	id := b.store.Put(session.Running)
	a := b.collectPrompt(id, "p1")
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	require.Contains(t, string(a.body), `"collectUntil"`)
	require.Equal(t, http.StatusOK, b.collectPrompt(id, "p1").status, "a repetition")
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.signals(t, 1))
	require.NoError(t, b.stop())
	require.Empty(t, b.temp.TakeCalls())
}

// TestSteerSignalsItsAbort checks that only the abort is signalled, not the prompt, because the
// workflow is in a turn.
func TestSteerSignalsItsAbort(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, never, never)
	b.promptNamed(id, "p1")
	a := b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"now","mode":"steer"}`)
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	require.Equal(t, []string{"notify " + id}, b.signals(t, 1))
}

// TestFailedCollectionEndIsLeftToRelay checks that the api sends no signal if it could not end a
// collection.
func TestFailedCollectionEndIsLeftToRelay(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.CollectWindow = time.Millisecond })
	id := b.store.Put(session.Running)
	b.store.Fail("PromptsCollected", errors.New("down"))
	b.collectPrompt(id, "p1")
	eventually(t, "the end of the collection", func() bool { return b.store.Calls("PromptsCollected") > 0 })
	require.NoError(t, b.stop())
	require.Empty(t, b.temp.TakeCalls())
}

// TestStoppingServerDoesNotWaitForCollections checks that a server stops at once, because a relay
// signals for the prompts.
func TestStoppingServerDoesNotWaitForCollections(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.CollectWindow = never })
	id := b.store.Put(session.Running)
	b.collectPrompt(id, "p1")
	require.NoError(t, b.stop())
	require.Empty(t, b.temp.TakeCalls())
	require.Zero(t, b.store.Calls("PromptsCollected"))
}
