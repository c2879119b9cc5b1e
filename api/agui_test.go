package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func runBody(messages string, more ...string) string {
	return `{"threadId":"t","runId":"r","tools":[],"context":[],"state":{},"forwardedProps":{},"messages":[` + messages + `]` + strings.Join(more, "") + `}`
}

func saidBody(id, text string, more ...string) string {
	return runBody(fmt.Sprintf(`{"id":%q,"role":"user","content":%q}`, id, text), more...)
}

// run reads a run to its end.
func (b *harness) run(id, body string) streamed {
	return b.chat("POST", "/api/sessions/"+id+"/ag-ui", body)
}

// types returns the types of a run's events.
func (s streamed) types(t *testing.T) []string {
	t.Helper()
	require.NoError(t, s.err)
	require.Equal(t, http.StatusOK, s.status, s.body)
	var types []string
	for frame := range strings.SplitSeq(strings.TrimSuffix(s.body, "\n\n"), "\n\n") {
		var e struct{ Type, Name string }
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(frame, "data: ")), &e), frame)
		if e.Type != "CUSTOM" {
			types = append(types, e.Type)
		}
	}
	return types
}

func blockEvent(b *harness, id, kind string, data any) {
	b.store.With(id, func(r *apitest.Row) { b.store.Append(r, kind, data) })
}

func text(id, content string, status conversation.BlockStatus) conversation.Block {
	return conversation.Block{ID: id, Type: conversation.AssistantText, Status: status, Content: content, CreatedAt: time.Unix(1, 0)}
}

func TestRunStreamsSnapshotThenEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	blockEvent(b, id, "block_complete", conversation.BlockComplete{Block: text("a", "before", conversation.Complete)})
	blockEvent(b, id, "block_start", conversation.BlockStart{Block: text("b", "hal", conversation.Streaming)})
	ended := make(chan streamed, 1)
	go func() { ended <- b.run(id, saidBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	blockEvent(b, id, "text_delta", conversation.TextDelta{BlockID: "b", Delta: "f"})
	blockEvent(b, id, "block_complete", conversation.BlockComplete{Block: text("b", "half", conversation.Complete)})
	claim(b, id, "m1", "run_1")
	b.store.Prompt(id, "m1", session.PromptCompleted)
	a := <-ended
	require.Equal(t, []string{
		"RUN_STARTED", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED",
	}, a.types(t))
	require.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
	require.Contains(t, a.body, `"messages":[{"id":"a","role":"assistant","content":"before"},{"id":"m1","role":"user","content":"hello"}]`)
	require.Contains(t, a.body, `"threadId":"t","runId":"r","outcome":{"type":"success"}`)

	// A repeated request, a request with later messages of the client, and a request that attaches
	// lead to the same run.
	for _, again := range []streamed{
		b.run(id, saidBody("m1", "hello")),
		b.run(id, runBody(`{"id":"m1","role":"user","content":"hello"},{"id":"x","role":"user","content":[]},{"id":"b","role":"assistant"}`)),
		b.chat("GET", "/api/sessions/"+id+"/ag-ui?message=m1", ""),
		b.chat("GET", "/api/sessions/"+id+"/ag-ui", ""),
	} {
		require.Equal(t, []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"}, again.types(t))
		require.Contains(t, again.body, `"content":"half"`)
	}
	require.Len(t, b.store.Row(id).Prompts, 1)
}

// TestRunContinuesWithSnapshotAfterGap lets the agent remove a block, and lets retention delete the
// next events.
func TestRunContinuesWithSnapshotAfterGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ended := make(chan streamed, 1)
	go func() { ended <- b.run(id, saidBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	b.store.With(id, func(r *apitest.Row) {
		b.store.Append(r, "block_start", conversation.BlockStart{Block: text("a", "wrong", conversation.Streaming)})
		b.store.Append(r, "block_removed", conversation.BlockRemoved{BlockID: "a"})
		b.store.Append(r, "block_complete", conversation.BlockComplete{Block: text("b", "right", conversation.Complete)})
	})
	b.store.Prompt(id, "m1", session.PromptCancelled)
	a := <-ended
	require.Equal(t, []string{
		"RUN_STARTED", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT", "RUN_FINISHED",
	}, a.types(t))
	require.Contains(t, a.body, `{"id":"b","role":"assistant","content":"right"}`)
	require.Contains(t, a.body, `"outcome":{"type":"cancelled"}`)
}

// TestRunWhoseSnapshotFailsIsAborted makes Postgres unavailable when a run needs another snapshot.
func TestRunWhoseSnapshotFailsIsAborted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ended := make(chan streamed, 1)
	go func() { ended <- b.run(id, saidBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	position := b.store.Row(id).Events[len(b.store.Row(id).Events)-1].Seq
	b.store.Fail("ConversationTail", failure.Errorf(failure.Unavailable, "no connection"))
	b.store.With(id, func(r *apitest.Row) {
		b.store.Append(r, "block_start", conversation.BlockStart{Block: text("a", "wrong", conversation.Streaming)})
		b.store.Append(r, "block_removed", conversation.BlockRemoved{BlockID: "a"})
	})
	require.ErrorIs(t, (<-ended).err, io.ErrUnexpectedEOF)
	eventually(t, "it is logged", func() bool { return strings.Contains(b.logs.String(), "stream aborted") })
	require.Contains(t, b.logs.String(), fmt.Sprintf(`"seq":%d,"error":"no connection"`, position+2))
	require.NotContains(t, b.logs.String(), "handler panicked")
	require.Zero(t, b.store.OpenReaders())
}

func TestQuestionIsInterrupt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	asked := question.Asked{ID: "q", Kind: question.Permission, ToolName: "Bash", ToolUseID: "tool", Title: "Run it?"}
	ended := make(chan streamed, 1)
	go func() { ended <- b.run(id, saidBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	first := b.store.Ask(id, asked, time.Hour)
	a := <-ended
	require.Equal(t, []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"}, a.types(t))
	require.Contains(t, a.body, `"interrupts":[{"id":"`+first+`","reason":"permission","message":"Run it?","toolCallId":"tool"`)

	// A client that attaches later gets all open questions.
	second := b.store.Ask(id, asked, time.Hour)
	a = b.chat("GET", "/api/sessions/"+id+"/ag-ui", "")
	require.Contains(t, a.body, first)
	require.Contains(t, a.body, second)

	entry := func(id, status, more string) string {
		return fmt.Sprintf(`{"interruptId":%q,"status":%q%s}`, id, status, more)
	}
	resume := `,"resume":[` + entry(first, "resolved", `,"payload":{"answer":"session"}`) + `,` + entry(second, "cancelled", "") + `]`
	go func() { ended <- b.run(id, saidBody("m1", "hello", resume)) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	b.store.Prompt(id, "m1", session.PromptCompleted)
	require.Equal(t, []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"}, (<-ended).types(t))
	answers := map[string]question.Decision{}
	for _, q := range b.store.Row(id).Questions {
		answers[q.ID] = q.Answer.Decision
	}
	require.Equal(t, map[string]question.Decision{first: question.ForSession, second: question.Reject}, answers)

	// Repeated answers have no effect; a different one is refused.
	require.Equal(t, http.StatusOK, b.run(id, saidBody("m1", "hello", resume)).status)
	b.do("POST", "/api/sessions/"+id+"/ag-ui", saidBody("m1", "hello", `,"resume":[`+entry(second, "resolved", "")+`]`)).problem(409, "question_answered")
	require.Equal(t, http.StatusOK, b.run(id, saidBody("m1", "hello", `,"resume":[`+entry(first, "cancelled", "")+`]`)).status)
}

func TestRunEndedByServerIsIncomplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ended := make(chan streamed, 1)
	go func() { ended <- b.run(id, saidBody("m1", "hello")) }()
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	require.NoError(t, b.stop())
	require.ErrorIs(t, (<-ended).err, io.ErrUnexpectedEOF)
}

func TestRunRejectsUnsupportedInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	user := `{"id":"a","role":"user","content":"x"}`
	questionID := session.NewID(session.QuestionPrefix)
	for body, field := range map[string]string{
		`{"runId":"r","messages":[` + user + `]}`:                                               "threadId",
		`{"threadId":"t","messages":[` + user + `]}`:                                            "runId",
		`{"threadId":"","runId":"r","messages":[` + user + `]}`:                                 "threadId",
		`{"threadId":"t","runId":"` + strings.Repeat("x", 257) + `","messages":[` + user + `]}`: "runId",
		`{"threadId":"t","runId":"r"}`:                                                          "messages",
		runBody(""):                                                                             "messages",
		runBody(`1`):                                                                            "messages[0]",
		runBody(`{"id":"a","role":"assistant","content":"x"}`):                                  "messages",
		runBody(`{"role":"user","content":"x"}`):                                                "messages[0].id",
		runBody(`{"id":"a","role":"user"}`):                                                     "messages[0].content",
		runBody(`{"id":"a","role":"user","content":" "}`):                                       "messages[0].content",
		runBody(`{"id":"a","role":"user","content":[{"type":"image"}]}`):                        "messages[0].content[0].type",
		runBody(user + `,{"id":"b","role":"user","content":7}`):                                 "messages[1].content",
		`{"threadId":"t","runId":"r","tools":[{}],"messages":[` + user + `]}`:                   "tools",
		`{"threadId":"t","runId":"r","context":[{}],"messages":[` + user + `]}`:                 "context",
		runBody(user, `,"resume":{}`):                                                           "resume",
		runBody(user, `,"resume":[7]`):                                                          "resume[0]",
		runBody(user, `,"resume":[{"status":"resolved"}]`):                                      "resume[0].interruptId",
		runBody(user, `,"resume":[{"interruptId":"7","status":"resolved"}]`):                    "resume[0].interruptId",
		runBody(user, `,"resume":[{"interruptId":"`+questionID+`","status":"no"}]`):             "resume[0].status",

		runBody(user, `,"resume":[{"interruptId":"`+questionID+`","status":"resolved","payload":{"answer":"yes"}}]`): "resume[0].payload.answer",
		runBody(user, `,"resume":[{"interruptId":"`+questionID+`","status":"resolved","payload":{"other":1}}]`):      "resume[0].payload.answer",
		runBody(user, `,"resume":[`+strings.TrimSuffix(strings.Repeat(`{},`, 101), ",")+`]`):                         "resume",
	} {
		p := b.do("POST", "/api/sessions/"+id+"/ag-ui", body).problem(400, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	path := "/api/sessions/" + id + "/ag-ui"
	b.do("POST", path, saidBody("a", strings.Repeat("x", session.MaxPromptBytes+1))).problem(413, "too_large")
	b.do("POST", path, strings.Repeat(" ", 8<<20+1)).problem(413, "too_large")
	b.do("POST", path, runBody(user+`,{"id":"b","role":"assistant","content":"y"}`)).problem(404, "prompt_not_found")
	b.do("POST", path, runBody(user, `,"resume":[{"interruptId":"`+questionID+`","status":"resolved"}]`)).problem(404, "question_not_found")
	b.do("GET", path+"?message=", "").problem(400, "invalid_request")
	b.do("GET", path+"?message=a", "").problem(404, "prompt_not_found")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/ag-ui", "").problem(404, "session_not_found")
	require.Empty(t, b.store.Row(id).Prompts)
}
