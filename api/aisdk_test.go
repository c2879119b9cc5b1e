package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func chatBody(id, text string) string {
	return fmt.Sprintf(`{"messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}]}`, id, text)
}

// streamed is the content of a stream that has ended.
type streamed struct {
	status int
	header http.Header
	body   string
	err    error
}

// chat reads a stream to its end. Goroutines other than the test's may call it.
func (b *harness) chat(method, path, body string) streamed {
	req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		return streamed{err: err}
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return streamed{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return streamed{status: resp.StatusCode, header: resp.Header, body: string(data), err: err}
}

// claim adds the events of a run that claims a prompt.
func claim(b *harness, id, promptID, runID string) {
	b.store.With(id, func(r *apitest.Row) {
		b.store.Append(r, event.TypeTurnStart, event.TurnStartData{RunID: runID, PromptID: promptID, Attempt: 1})
	})
	b.store.Prompt(id, promptID, session.PromptProcessing)
}

func TestChatStreamsTurnOfItsMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	answered := make(chan streamed, 1)
	go func() { answered <- b.chat("POST", "/api/sessions/"+id+"/ai", chatBody("m1", "hello")) }()
	eventually(t, "the prompt is stored", func() bool { return len(b.store.Row(id).Prompts) == 1 })
	claim(b, id, "m1", "run_1")
	b.store.Prompt(id, "m1", session.PromptCompleted)
	a := <-answered
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "v1", a.header.Get("X-Vercel-Ai-Ui-Message-Stream"))
	require.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
	text := a.body
	require.True(t, strings.HasPrefix(text, `data: {"type":"start","messageId":"reply-m1"`), text)
	require.True(t, strings.HasSuffix(text, "data: {\"type\":\"finish\",\"finishReason\":\"stop\"}\n\ndata: [DONE]\n\n"), text)

	// A repeated message, and its stream by name, lead to the same turn. No prompt runs twice.
	again := b.chat("POST", "/api/sessions/"+id+"/ai", chatBody("m1", "hello"))
	named := b.chat("GET", "/api/sessions/"+id+"/ai/stream?message=m1", "")
	require.Equal(t, again.body, named.body)
	require.Len(t, b.store.Row(id).Prompts, 1)
	require.Equal(t, http.StatusNoContent, b.do("GET", "/api/sessions/"+id+"/ai/stream", "").status)
}

// TestChatWithDeletedEvents deletes the events of a turn by retention, so that only the prompt
// remains.
func TestChatWithDeletedEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.do("POST", "/api/sessions/"+id+"/prompts", `{"id":"m1","content":"hello"}`)
	claim(b, id, "m1", "run_1")
	b.store.Prompt(id, "m1", session.PromptFailed)
	b.store.Status(id, session.Running)
	newest := int64(len(b.store.Row(id).Events))
	b.store.Forget(id, newest)
	text := b.chat("GET", "/api/sessions/"+id+"/ai/stream?message=m1", "").body
	require.Contains(t, text, `{"type":"error","errorText":"the turn failed: the agent gave no reason"}`)
	require.True(t, strings.HasSuffix(text, "data: [DONE]\n\n"), text)
}

func TestChatEndedByServerIsIncomplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ended := make(chan streamed, 1)
	go func() { ended <- b.chat("POST", "/api/sessions/"+id+"/ai", chatBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	require.NoError(t, b.stop())
	require.ErrorIs(t, (<-ended).err, io.ErrUnexpectedEOF)
}

func TestChatRejectsUnsupportedInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for body, field := range map[string]string{
		`{}`:              "messages",
		`{"messages":[]}`: "messages",
		`{"messages":[{"id":"a","role":"assistant","parts":[]}]}`:                         "messages[0].role",
		`{"messages":[{"role":"user","parts":[]}]}`:                                       "messages[0].id",
		`{"messages":[{"id":"a","role":"user","parts":[]}]}`:                              "messages[0].parts",
		`{"messages":[{"id":"a","role":"user","parts":[{"type":"file","url":"data:"}]}]}`: "messages[0].parts[0].type",
		`{"messages":[1]}`: "messages[0]",
		`{"trigger":"other","messages":[{"id":"a","role":"user","parts":[{"type":"text","text":"x"}]}]}`: "trigger",
		`{"tools":[],"messages":[{"id":"a","role":"user","parts":[{"type":"text","text":"x"}]}]}`:        "tools",
	} {
		p := b.do("POST", "/api/sessions/"+id+"/ai", body).problem(400, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	b.do("POST", "/api/sessions/"+id+"/ai", `{"trigger":"regenerate-message","messages":[{"id":"a","role":"user","parts":[{"type":"text","text":"x"}]}]}`).problem(409, "not_supported")
	b.do("POST", "/api/sessions/"+id+"/ai", chatBody("a", strings.Repeat("x", session.MaxPromptBytes+1))).problem(413, "too_large")
	b.do("POST", "/api/sessions/"+id+"/ai", strings.Repeat(" ", 8<<20+1)).problem(413, "too_large")
	b.do("GET", "/api/sessions/"+id+"/ai/stream?message=", "").problem(400, "invalid_request")
	b.do("GET", "/api/sessions/"+id+"/ai/stream?message=a", "").problem(404, "prompt_not_found")
	require.Empty(t, b.store.Row(id).Prompts)
}

func TestInvalidMessageIDIsHashed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ended := make(chan streamed, 1)
	go func() { ended <- b.chat("POST", "/api/sessions/"+id+"/ai", chatBody("a:b/c", "hello")) }()
	eventually(t, "the prompt is stored", func() bool { return len(b.store.Row(id).Prompts) == 1 })
	prompt := b.store.Row(id).Prompts[0]
	require.Equal(t, "msg_fb745651", prompt.ID[:12])
	b.store.Prompt(id, prompt.ID, session.PromptCancelled)
	require.Contains(t, (<-ended).body, `{"type":"abort"}`)
	require.Contains(t, b.chat("GET", "/api/sessions/"+id+"/ai/stream?message=a:b/c", "").body, `{"type":"abort"}`)
}
