package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func picture(text string) attachment.Attachment {
	data := []byte("\x89PNG\r\n\x1a\n" + text)
	return attachment.Attachment{
		Info: attachment.Info{ID: conversation.AttachmentID(data), MediaType: "image/png", Bytes: int64(len(data))}, Data: data,
	}
}

func TestImagesAreStoredOnceByCurrentAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "draw"))
	batch := attachment.Batch{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", Attachments: []attachment.Attachment{picture("one"), picture("two"), picture("one")}}
	for range 2 {
		require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	}
	got, err := b.AttachmentGet(b.ctx, b.id, picture("two").ID)
	require.NoError(t, err)
	require.Equal(t, picture("two"), got)

	_, err = b.AttachmentGet(b.ctx, b.id, picture("three").ID)
	requireCode(t, failure.NoAttachment, err)
	_, err = b.AttachmentGet(b.ctx, session.NewID(session.SessionPrefix), picture("two").ID)
	requireCode(t, failure.NoSession, err)
	_, err = b.AttachmentGet(b.ctx, b.session(t), picture("two").ID)
	requireCode(t, failure.NoAttachment, err)

	batch.Attachments = []attachment.Attachment{picture("three")}
	batch.Token = "another"
	require.ErrorIs(t, b.AttachmentsAppend(b.ctx, batch), eventlog.ErrFenced)
	batch.Token, batch.Generation = "t1", 0
	require.ErrorIs(t, b.AttachmentsAppend(b.ctx, batch), eventlog.ErrFenced)
	_, err = b.AttachmentGet(b.ctx, b.id, picture("three").ID)
	requireCode(t, failure.NoAttachment, err)
}

func TestImagesBeyondBoundOfSessionAreNotStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "draw"))
	b.sql(t, "INSERT INTO attachments (session_id, id, origin, media_type, bytes, content, created_at) "+
		"SELECT $1, 'att_' || i, 'result', 'image/png', 1, 'x', now() FROM generate_series(1, $2) i", b.id, attachment.MaxImages-1)
	batch := attachment.Batch{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", Attachments: []attachment.Attachment{picture("last"), picture("beyond")}}
	require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	_, err := b.AttachmentGet(b.ctx, b.id, picture("last").ID)
	require.NoError(t, err)
	_, err = b.AttachmentGet(b.ctx, b.id, picture("beyond").ID)
	requireCode(t, failure.NoAttachment, err)

	large := picture(strings.Repeat("x", attachment.MaxBytes-8))
	batch.Attachments = []attachment.Attachment{large}
	b.sql(t, "DELETE FROM attachments WHERE session_id = $1", b.id)
	require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	got, err := b.AttachmentGet(b.ctx, b.id, large.ID)
	require.NoError(t, err)
	require.Len(t, got.Data, attachment.MaxBytes)
}

func TestAttachmentsAreStoredWithTheirSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := attachment.Attachment{Info: attachment.Info{ID: conversation.AttachmentID([]byte(planted), "a"), Name: "a", MediaType: "text/plain", Bytes: int64(len(planted))}, Data: []byte(planted)}
	first := &session.Prompt{ID: "p1", Content: "read it", Attachments: []attachment.Attachment{a}}
	s := session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}
	stored, created, err := b.SessionCreate(b.ctx, s, first, session.Idempotency{})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, []string{"attachments"}, find(t, b.url, planted), "neither events nor prompts have it")
	got, err := b.AttachmentGet(b.ctx, stored.ID, a.ID)
	require.NoError(t, err)
	require.Equal(t, a, got)
	p, err := b.PromptGet(b.ctx, stored.ID, "p1")
	require.NoError(t, err)
	require.Equal(t, resource.Attachments(first.Attachments), resource.Attachments(p.Attachments))
}

func TestAttachmentsAreStoredWithTheirPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := func(name, text string) attachment.Attachment {
		return attachment.Attachment{
			Info: attachment.Info{ID: conversation.AttachmentID([]byte(text), name), Name: name, MediaType: "text/plain", Bytes: int64(len(text))},
			Data: []byte(text),
		}
	}
	prompt := session.Prompt{
		ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "read them",
		Attachments: []attachment.Attachment{file("a", planted), file("b", "two")},
	}
	for i := range 2 {
		p, _, created, err := b.PromptSubmit(b.ctx, prompt)
		require.NoError(t, err)
		require.Equal(t, i == 0, created)
		require.Equal(t, resource.Attachments(prompt.Attachments), resource.Attachments(p.Attachments))
	}
	require.Equal(t, []string{"attachments"}, find(t, b.url, planted), "neither events nor prompts have it")
	got, err := b.AttachmentGet(b.ctx, b.id, prompt.Attachments[1].ID)
	require.NoError(t, err)
	require.Equal(t, file("b", "two"), got)
	list, _, err := b.PromptList(b.ctx, b.id, 10, "")
	require.NoError(t, err)
	require.Equal(t, resource.Attachments(prompt.Attachments), resource.Attachments(list[0].Attachments))

	other := prompt
	other.Attachments = []attachment.Attachment{file("a", planted), file("b", "three")}
	_, _, _, err = b.PromptSubmit(b.ctx, other)
	requireCode(t, failure.PromptExists, err)
	_, err = b.AttachmentGet(b.ctx, b.id, other.Attachments[1].ID)
	requireCode(t, failure.NoAttachment, err)
	other.Attachments = nil
	_, _, _, err = b.PromptSubmit(b.ctx, other)
	requireCode(t, failure.PromptExists, err)

	b.running(t)
	runID := b.begin(t, prompt.ID)
	start, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 2, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, resource.Attachments(prompt.Attachments), resource.Attachments(start.Prompt.Attachments))
	for _, e := range b.events(t) {
		if e.Type == "prompt" {
			require.Equal(t, strings.Contains(string(e.Data), `"status":"queued"`), strings.Contains(string(e.Data), "attachments"), "the first event has them: %s", e.Data)
		}
	}

	b.sql(t, "INSERT INTO attachments (session_id, id, origin, media_type, bytes, content, created_at) "+
		"SELECT $1, 'att_' || i, 'prompt', 'text/plain', 1, 'x', now() FROM generate_series(1, $2) i", b.id, attachment.MaxPromptsFiles-3)
	next := session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "more", Attachments: []attachment.Attachment{file("c", "1"), file("d", "1")}}
	_, _, _, err = b.PromptSubmit(b.ctx, next)
	requireCode(t, failure.LimitReached, err)
	_, err = b.PromptGet(b.ctx, b.id, next.ID)
	requireCode(t, failure.NoPrompt, err)
	next.Attachments = next.Attachments[:1]
	_, _, _, err = b.PromptSubmit(b.ctx, next)
	require.NoError(t, err)
}
