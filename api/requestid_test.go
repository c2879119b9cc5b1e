package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptHasIdOfItsRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	var accepted struct{ Prompt struct{ RequestID string } }
	r := b.do("POST", "/api/sessions/"+id+"/prompts", `{"content": "hello"}`, "X-Request-Id", "mine-42")
	require.Equal(t, http.StatusAccepted, r.status)
	require.NoError(t, json.Unmarshal(r.body, &accepted))
	require.Equal(t, "mine-42", accepted.Prompt.RequestID)

	r = b.do("POST", "/api/sessions/"+id+"/prompts", `{"content": "hello"}`, "X-Request-Id", "no good")
	require.NoError(t, json.Unmarshal(r.body, &accepted))
	require.Equal(t, r.header.Get("X-Request-Id"), accepted.Prompt.RequestID, "one that is unfit is replaced")
}
